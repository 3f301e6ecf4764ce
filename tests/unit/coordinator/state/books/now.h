// The hour at which the tests of the books play.
#pragma once

#include "base/clock.h"

namespace longhaul::coordinator {

inline const MonoTime kNow = MonoTime() + absl::Hours(1);

}  // namespace longhaul::coordinator
