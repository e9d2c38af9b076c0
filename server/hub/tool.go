package hub

// Tool says which hosted server a tool is of, by its public name, and whether it
// says that it only reads; "" for no hosted server's.
func (h *Hub) Tool(public string) (upstream string, reads bool) {
	t, ok := h.current().tools[public]
	if !ok {
		return "", false
	}
	return t.up.server.Name, t.read
}
