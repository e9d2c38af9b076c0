package lease

func child(string) int { return 2 }
