#include "deploy/cluster/requirements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/capability.h>
#include <unistd.h>

#include <fstream>

#include "deploy/cluster/process.h"

namespace longhaul {
namespace {

bool Has(const Machine& machine, int capability) {
  return (machine.capabilities >> capability & 1) != 0;
}

}  // namespace

Machine ThisMachine() {
  Machine machine;
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    if (key == "CapEff:") {
      status >> std::hex >> machine.capabilities;
      break;
    }
    status.ignore(4096, '\n');
  }
  machine.root = geteuid() == 0;
  machine.has_ip = !FindTool("ip").empty();
  machine.has_tc = !FindTool("tc").empty();
  return machine;
}

Status CheckRequirements(const Machine& machine) {
  std::vector<std::string> missing;
  std::vector<std::string> rights;
  if (!Has(machine, CAP_NET_ADMIN)) rights.push_back("CAP_NET_ADMIN (links and their shaping)");
  if (!Has(machine, CAP_SYS_ADMIN)) rights.push_back("CAP_SYS_ADMIN (network namespaces)");
  if (!rights.empty()) {
    missing.push_back(fmt::format(
        "the right{} {}: {}", rights.size() == 1 ? "" : "s", fmt::join(rights, " and "),
        machine.root ? "in a container, start it with docker run --cap-add NET_ADMIN --cap-add "
                       "SYS_ADMIN --security-opt apparmor=unconfined, or --privileged"
                     : "run the command with sudo"));
  }
  std::vector<std::string> tools;
  if (!machine.has_ip) tools.push_back("ip");
  if (!machine.has_tc) tools.push_back("tc");
  if (!tools.empty()) {
    missing.push_back(fmt::format("the program{} {}: apt-get install iproute2",
                                  tools.size() == 1 ? "" : "s", fmt::join(tools, " and ")));
  }
  if (missing.empty()) return absl::OkStatus();
  return FailedPrecondition("a local cluster needs more than this machine gives:\n  - {}",
                            fmt::join(missing, "\n  - "));
}

}  // namespace longhaul
