// A library with a thread-local, for outside.c.
__thread int here = 1;

void *address(void) { return &here; }
