package child

// memory adds up what the members have in memory; what they share is counted
// for each.
func (g *group) memory() (rss int64, ok bool) {
	members, _ := membersOf(g.id)
	for _, m := range members {
		if m.pid == g.id && m.start != g.start {
			return 0, false // the number is somebody else's by now
		}
		rss += m.rss
	}
	return rss, rss > 0
}
