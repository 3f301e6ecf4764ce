// Reads and checks the command line of longhaul-worker, before any file or port is opened.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/device_name.h"
#include "run/kinds/transports.h"
#include "worker/agent/endpoints.h"

namespace longhaul::worker {

enum ExitCode { kOk = 0, kFailed = 1, kWrongUsage = 2 };

struct WorkerFlags {
  std::vector<std::string> coordinators;  // in the order in which they are tried
  std::string token_file;
  bool insecure = false;
  std::string state_dir;
  std::string name;
  std::vector<std::string> transports;  // names; default: all that listen
  std::string data_address = std::string(kAdvertiseAuto);
  std::string data_interface;
  std::map<std::string, std::string, std::less<>> addresses;  // by transport, if it has its own
  std::vector<std::string> advertise;
  std::string relay;
  std::string relay_advertise;
  std::string device = "cpu";
  double memory_share = 1;
  std::string metrics;
  std::string dump_boundaries;
  uint64_t dump_every = 16;
  double progress_timeout_seconds = 60;
  std::string log_level = "info";
  // Derived from the flags above.
  std::vector<DeviceName> devices;
  std::string left_out;  // to be logged: a default transport that is not used, and why
};

// Fills `flags` and returns nullopt, or prints an error or the help and returns the exit code.
std::optional<int> ReadFlags(int argc, char** argv, WorkerFlags* flags);

bool Has(const WorkerFlags& flags, std::string_view transport);
// Returns the address at which a transport listens: that of its own flag (--grpc-address, ...), if
// it is given. Else the first listening transport has the data address, and every other transport
// has port 0 (any free port) of the same host.
std::string AddressOf(const WorkerFlags& flags, const TransportTraits& transport);
// Returns the first transport of the flags that may face strangers (run/kinds/transports.h), to
// which --advertise applies. Null: there is none.
const TransportTraits* FirstToFaceStrangers(const WorkerFlags& flags);

}  // namespace longhaul::worker
