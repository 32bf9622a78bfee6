// Goal: the judge takes what may happen, and nothing that may not.
package main

import (
	"os"
	"path/filepath"
	"testing"
)

func op(client int, kind string, call, end int64, result string, run int) Operation {
	ended := &end
	if end == 0 {
		ended = nil
	}
	return Operation{Client: client, Key: "k", Kind: kind, Call: call, Return: ended, Result: result, Run: run}
}

// run and request are of the client with this number.
func run(call, end int64, number int) Operation {
	return op(100+number, "run", call, end, "answer", number)
}

func answer(client int, call, end int64, number int) Operation {
	return op(client, "request", call, end, "answer", number)
}

func request(client int, call, end int64, result string) Operation {
	return op(client, "request", call, end, result, 0)
}

var cases = []struct {
	name      string
	onInDoubt string
	isRight   bool
	all       []Operation
}{
	{"first answer and its repetition", "refuse", true, []Operation{run(2, 3, 1), answer(0, 1, 4, 1), answer(1, 5, 6, 1)}},
	{"under way, then answered", "run", true, []Operation{run(2, 5, 1), request(1, 3, 4, "in_progress"), answer(0, 1, 6, 1)}},
	{"killed, then carried out again", "run", true, []Operation{request(0, 1, 0, "none"), run(2, 0, 1), run(5, 6, 2), answer(1, 4, 7, 2)}},
	{"killed after the run, its answer remembered", "run", true, []Operation{request(0, 1, 0, "none"), run(2, 3, 1), answer(1, 5, 7, 1)}},
	{"killed, then in doubt", "refuse", true, []Operation{request(0, 1, 0, "none"), run(2, 0, 1), request(1, 5, 7, "in_doubt")}},
	{"in doubt, then the slow one's answer", "refuse", true, []Operation{run(2, 9, 1), request(1, 5, 7, "in_doubt"), answer(0, 1, 10, 1)}},
	{"not remembered, then carried out again", "run", true, []Operation{op(100, "run", 2, 3, "none", 1), request(0, 1, 4, "none"), run(6, 7, 2), answer(1, 5, 8, 2)}},
	{"run that began before the other's answer", "run", true, []Operation{run(1, 9, 1), run(2, 3, 2), answer(0, 1, 4, 2)}},

	{"answer changes", "run", false, []Operation{run(2, 3, 1), run(2, 3, 2), answer(0, 1, 4, 1), answer(1, 5, 6, 2)}},
	{"answer changes and changes back", "run", false, []Operation{run(2, 3, 1), run(2, 3, 2), answer(0, 1, 4, 1), answer(1, 1, 6, 2), answer(2, 7, 8, 1)}},
	{"answer of no run", "run", false, []Operation{run(2, 3, 1), answer(0, 1, 4, 2)}},
	{"answer before its run", "run", false, []Operation{answer(0, 1, 2, 1), run(3, 4, 1)}},
	{"answer of a run that is not remembered", "run", false, []Operation{op(100, "run", 2, 3, "none", 1), answer(0, 1, 4, 1)}},
	{"run after the answer", "run", false, []Operation{run(2, 3, 1), answer(0, 1, 4, 1), run(5, 6, 2)}},
	{"run after the answer, whose end nobody knows", "run", false, []Operation{run(2, 3, 1), answer(0, 1, 4, 1), run(5, 0, 2)}},
	{"two runs where those in doubt are refused", "refuse", false, []Operation{request(0, 1, 0, "none"), run(2, 3, 1), run(5, 6, 2), answer(1, 4, 7, 2)}},
	{"two runs at once where those in doubt are refused", "refuse", false, []Operation{run(2, 5, 1), run(3, 6, 2)}},
	{"not remembered, and run again where that is refused", "refuse", false, []Operation{op(100, "run", 2, 3, "none", 1), run(6, 7, 2)}},
	{"in doubt where it is carried out again", "run", false, []Operation{run(2, 0, 1), request(1, 5, 7, "in_doubt")}},
	{"in doubt after the answer", "refuse", false, []Operation{run(2, 3, 1), answer(0, 1, 4, 1), request(1, 5, 6, "in_doubt")}},
	{"under way after the answer", "run", false, []Operation{run(2, 3, 1), answer(0, 1, 4, 1), request(1, 5, 6, "in_progress")}},
	{"unknown word", "run", false, []Operation{request(0, 1, 2, "perhaps")}},
}

func TestJudge(t *testing.T) {
	for _, one := range cases {
		t.Run(one.name, func(t *testing.T) {
			history := History{OnInDoubt: one.onInDoubt, Operations: one.all}
			if is := judge(&history, ""); is != one.isRight {
				t.Errorf("linearizable: %v", is)
			}
		})
	}
}

func TestKeysAreApart(t *testing.T) {
	other := answer(0, 5, 6, 1)
	other.Key = "other"
	history := History{OnInDoubt: "run", Operations: []Operation{run(2, 3, 1), answer(0, 1, 4, 1), other}}
	if judge(&history, "") {
		t.Error("one key's run is not another's")
	}
}

func TestPictureOfWhatIsWrong(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "wrong.html")
	history := History{OnInDoubt: "run", Operations: []Operation{answer(0, 1, 2, 1)}}
	if judge(&history, picture) {
		t.Fatal("an answer of no run")
	}
	if about, err := os.Stat(picture); err != nil || about.Size() == 0 {
		t.Error("there is no picture", err)
	}
}
