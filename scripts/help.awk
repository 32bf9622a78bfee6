# Prints a Makefile's recipes, `target: ... ## what it does`, under the headings `##@ Heading`.
BEGIN {
    width = 16
    printf "Usage: make RECIPE [ARGS=...]\n"
}
/^##@ / {
    printf "\n%s\n", substr($0, 5)
}
/^[a-z][a-z-]*:.*## / {
    target = $0
    sub(/:.*/, "", target)
    text = $0
    sub(/^.*## /, "", text)
    printf "  %-*s %s\n", width, target, text
}
