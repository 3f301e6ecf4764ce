// The hour at which the tests of the books play.
#ifndef LONGHAUL_TESTS_UNIT_COORDINATOR_STATE_BOOKS_NOW_H_
#define LONGHAUL_TESTS_UNIT_COORDINATOR_STATE_BOOKS_NOW_H_

#include "base/clock.h"

namespace longhaul::coordinator {

inline const MonoTime kNow = MonoTime() + absl::Hours(1);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_TESTS_UNIT_COORDINATOR_STATE_BOOKS_NOW_H_
