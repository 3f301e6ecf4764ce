#include "worker/measuring/device_turn.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"

namespace longhaul::worker {

UniqueFd TakeTurn(const std::string& device_file, absl::Duration patience) {
  UniqueFd fd(::open(device_file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fd;
  const Deadline deadline = Deadline::After(patience);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return {};
    if (deadline.Expired()) {
      LogWarning("others have measured on {} for {}; going on beside them", device_file,
                 longhaul::FormatDuration(patience));
      return {};
    }
    // flock has no deadline of its own.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fd;
}

}  // namespace longhaul::worker
