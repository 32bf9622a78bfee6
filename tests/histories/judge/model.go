package main

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// History is what clients and the service have seen of some keys.
type History struct {
	Seed       uint64      `json:"seed"`
	Store      string      `json:"store"`
	OnInDoubt  string      `json:"on_in_doubt"`
	Operations []Operation `json:"operations"`
}

// Operation is a client's request, or a run of the service.
type Operation struct {
	Client int    `json:"client"`
	Key    string `json:"key"`
	// "request" or "run".
	Kind string `json:"kind"`
	Call int64  `json:"call"`
	// Nobody knows when, or whether, it ended if there is none.
	Return *int64 `json:"return"`
	// Of a request: "answer", "in_progress", "in_doubt", or "none" if it says nothing of the key. Of a run: "answer", or
	// "none" if its answer is one that is not remembered.
	Result string `json:"result"`
	// The number of the run, counted from 1 for each key by the service: its own, or the one in the answer.
	Run int `json:"run"`
}

// state is what is so of one key.
type state struct {
	runs     int
	answers  uint64 // The runs whose answers may be given, by their numbers' bits.
	answered int    // The run whose answer was given; 0: none was.
}

// modelOf says what is promised, for one key at a time:
//   - What was answered once is the answer for ever, and that of a run.
//   - After that there is no further run, and nobody hears that the request is under way or in doubt.
//   - Where requests in doubt are refused, there is one run at most; only there somebody hears that one is in doubt.
func modelOf(onInDoubt string) porcupine.Model {
	refuses := onInDoubt == "refuse"
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, operation := range history {
				key := operation.Input.(Operation).Key
				byKey[key] = append(byKey[key], operation)
			}
			var all [][]porcupine.Operation
			for _, operations := range byKey {
				all = append(all, operations)
			}
			return all
		},
		Init: func() any { return state{} },
		Step: func(before, input, _ any) (bool, any) {
			now, operation := before.(state), input.(Operation)
			if operation.Kind == "run" {
				isAllowed := now.answered == 0 && !(refuses && now.runs > 0)
				now.runs++
				if operation.Result == "answer" {
					now.answers |= 1 << operation.Run
				}
				return isAllowed, now
			}
			switch operation.Result {
			case "answer":
				isOfARun := now.answers&(1<<operation.Run) != 0
				isTheSame := now.answered == 0 || now.answered == operation.Run
				now.answered = operation.Run
				return isOfARun && isTheSame, now
			case "in_progress":
				return now.answered == 0, now
			case "in_doubt":
				return refuses && now.answered == 0, now
			case "none":
				return true, now
			}
			return false, now
		},
		DescribeOperation: func(input, _ any) string {
			operation := input.(Operation)
			return fmt.Sprintf("%s: %s %d", operation.Kind, operation.Result, operation.Run)
		},
		DescribeState: func(at any) string {
			now := at.(state)
			return fmt.Sprintf("%d runs, answered %d", now.runs, now.answered)
		},
	}
}

func operationsOf(history *History) []porcupine.Operation {
	var all []porcupine.Operation
	for _, operation := range history.Operations {
		end := int64(math.MaxInt64)
		if operation.Return != nil {
			end = *operation.Return
		}
		all = append(all, porcupine.Operation{
			ClientId: operation.Client, Input: operation, Call: operation.Call, Output: nil, Return: end,
		})
	}
	return all
}
