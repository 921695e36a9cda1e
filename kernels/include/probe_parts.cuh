// Builds for floors, by macros that the host sets: what is left takes how long?
#pragma once

// Leave out a part of the work.
#ifndef SKIP_LOAD
#define SKIP_LOAD 0
#endif
#ifndef SKIP_PRODUCT
#define SKIP_PRODUCT 0
#endif
#ifndef SKIP_STORE
#define SKIP_STORE 0
#endif
// Of a kernel whose C leaves through a ring, the producer alone: it loads a slot again as soon as
// it has landed, and stores tiles of C from whatever lies in the slots. What the same bytes take
// when nothing waits for a product.
#ifndef MOVE_ONLY
#define MOVE_ONLY 0
#endif
