package server

import (
	"majordomus/server/board"
)

// Peers is the board, of one checkout or of all of a repository's.
type Peers struct {
	Peers    []board.View    `json:"peers"`
	Overlaps []board.Overlap `json:"overlaps"`
	LeftOut  int             `json:"overlaps_left_out,omitempty"`
	Boards   []BoardState    `json:"boards"`
	Complete bool            `json:"complete"` // every board that there is was read
}

// BoardState is one checkout, and whether its board could be read.
type BoardState struct {
	Checkout   string `json:"checkout"`
	CheckoutID string `json:"checkout_id"`
	Root       string `json:"root"`
	Linked     bool   `json:"linked_worktree"`
	This       bool   `json:"this"`
	State      string `json:"state"` // served, none (no server runs) or unread
	URL        string `json:"url,omitempty"`
	Peers      int    `json:"peers"` // attached
	Reason     string `json:"reason,omitempty"`
}

// Executions are the calls of tools that run, and the last that ended, the
// newest first.
type Executions struct {
	Running []board.Execution `json:"running"`
	Ended   []board.Execution `json:"ended"`
}
