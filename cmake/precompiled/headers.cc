// Only here to compile headers.h with.
