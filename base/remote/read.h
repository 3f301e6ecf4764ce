// Reads ranges of an object side by side, and checks that all of them are of one version.
#pragma once

#include "base/remote/place.h"

namespace longhaul::remote {

// As Store::Read. `place` and `tools` must outlive the call.
Status ReadRanges(const Place& place, const Tools& tools, const Address& object,
                  const Version& version, uint64_t first, uint64_t count, const Take& take,
                  const http::Call& call);

// Calls `work` with 0, 1, ... count - 1 from up to `threads` threads and waits for all. After the
// first error no further number is begun, and the error is returned. The call that `work` gets is
// given up also when another number has failed.
Status SideBySide(uint64_t count, int threads, const http::Call& call,
                  const std::function<Status(uint64_t number, const http::Call& call)>& work);

}  // namespace longhaul::remote
