#include "base/machine.h"

#include "base/file.h"

namespace longhaul {

std::string MachineId() {
  const StatusOr<std::string> id = ReadFile("/proc/sys/kernel/random/boot_id");
  return id.ok() ? id->substr(0, id->find('\n')) : "";
}

}  // namespace longhaul
