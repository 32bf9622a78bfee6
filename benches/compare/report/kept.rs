//! What the page already says of a part: it stays where there are no results of that part here, as in a new checkout.
//!
//! A part's rows begin with its name, and its sections are between its mark and the next one.

/// The page as it is.
pub struct Page(String);

/// Before the last section, which is no part's.
const END: &str = "## How to read this";

/// What stands before a part's sections.
pub fn mark(part: &str) -> String {
    format!("<!-- part: {part} -->\n\n")
}

impl Page {
    /// A page with this text.
    pub fn new(text: String) -> Page {
        Page(text)
    }

    /// A part's rows in the table of the section with this title, cell by cell.
    pub fn rows(&self, title: &str, part: &str) -> Vec<Vec<String>> {
        let cells = |line: &str| -> Option<Vec<String>> {
            let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
            Some(row.split(" | ").map(|cell| cell.trim().to_owned()).collect())
        };
        self.section(title).lines().filter_map(cells).filter(|row| row.first().is_some_and(|of| of == part)).collect()
    }

    /// The points of the list in the section with this title.
    pub fn points(&self, title: &str) -> Vec<String> {
        self.section(title).lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
    }

    /// A part's sections.
    pub fn sections(&self, part: &str) -> Option<&str> {
        let (_, rest) = self.0.split_once(&mark(part))?;
        let end = ["<!-- part: ", END].iter().filter_map(|end| rest.find(end)).min();
        Some(&rest[..end.unwrap_or(rest.len())])
    }

    fn section(&self, title: &str) -> &str {
        let rest = self.0.split_once(&format!("\n## {title}\n")).map_or("", |(_, rest)| rest);
        rest.split("\n## ").next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n## Machine\n\n- one\n- two\n\n| part | settings |\n|---|--:|\n| ids | records 1 |\n\n\
                        ## Goals\n\n| part | what | goal |\n|---|--:|--:|\n| ids | a | b |\n| latency |  | d |\n| ids | e | f |\n\n\
                        <!-- part: ids -->\n\n## Ids\n\ntext\n\n<!-- part: latency -->\n\n## Latency\n\nmore\n\n\
                        ## How to read this\n\nend\n";

    #[test]
    fn part_has_its_rows_and_sections() {
        let page = Page::new(PAGE.to_owned());
        assert_eq!(page.rows("Goals", "ids"), [["ids", "a", "b"], ["ids", "e", "f"]]);
        assert_eq!(page.rows("Goals", "latency"), [["latency", "", "d"]]);
        assert_eq!(page.rows("Machine", "latency"), Vec::<Vec<String>>::new());
        assert_eq!(page.points("Machine"), ["one", "two"]);
        assert_eq!(page.sections("ids"), Some("## Ids\n\ntext\n\n"));
        assert_eq!(page.sections("latency"), Some("## Latency\n\nmore\n\n"));
        assert_eq!(page.sections("moves"), None);
    }
}
