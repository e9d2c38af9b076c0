package hub

// This opens a backdoor for the tests outside the package.
const (
	MostCalls      = mostCalls
	MostCallsOfOne = mostOfOne
)
