// Reads and checks the command line of longhaul-worker, before any file or port is opened. For the
// main thread, before other threads start. `longhaul-worker --help` describes each flag.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/device_name.h"
#include "base/flags/metrics_flags.h"
#include "run/kinds/transports.h"
#include "worker/agent/endpoints.h"

namespace longhaul::worker {

enum ExitCode { kOk = 0, kFailed = 1, kWrongUsage = 2 };

struct WorkerFlags {
  std::vector<std::string> coordinators;  // host:port, in the order in which they are tried
  std::string token_file;                 // empty: none
  bool insecure = false;                  // without TLS
  std::string state_dir;                  // never empty after ReadFlags
  std::string name;                       // empty: the host's name
  std::vector<std::string> transports;    // names; default: all transports that listen
  // ip:port for tensors. "auto": this machine's address towards the coordinator, with a free port;
  // ReadFlags puts that address here if a transport uses it.
  std::string data_address = std::string(kAdvertiseAuto);
  std::string data_interface;  // network interface; empty: the one that has data_address
  // Listening addresses by name of transport. Missing or empty: the transport has no own address.
  std::map<std::string, std::string, std::less<>> addresses;
  // host:port at which other workers reach the transport of FirstToFaceStrangers, or "auto". Empty:
  // at its listening address.
  std::vector<std::string> advertise;
  std::string relay;                // ip:port at which to carry links of other workers; empty: none
  std::string relay_advertise;      // host:port at which others reach the relay; empty: derived
  std::string device = "auto";      // as ParseDeviceNames takes it (base/device_name.h), or "auto"
  double memory_share = 1;          // part of each device's memory for stages, 0.001 to 1
  bool remote_credentials = false;  // use this machine's for models at addresses
  std::vector<std::string> data_roots;       // folders with data sets and models for runs
  std::vector<std::string> remote_hosts;     // allowed beside the usual ones
  std::vector<std::string> remote_networks;  // private networks where those hosts may be
  std::vector<std::string> python_codecs;    // modules of Python that runs may name codecs of
  MetricsFlags metrics;                      // for Prometheus
  bool witness = false;                      // takes part when two coordinators decide who leads
  std::string witness_token_file;  // a join token for witnesses; empty: it has joined already
  std::string dump_boundaries;     // folder for activations and gradients as files; empty: no files
  uint64_t dump_every = 16;        // optimizer steps from one dump to the next
  std::vector<std::string> rehearse;     // faults and lies to commit (worker/pipeline/rehearsal.h)
  double leave_within_seconds = 25;      // after SIGTERM; 0: the worker ends at once
  double progress_timeout_seconds = 60;  // a stage that makes no progress for so long is stuck
  std::string log_level = "info";
  // ReadFlags derives the rest from the flags above.
  std::vector<DeviceName> devices;  // of `device`; empty for "auto"
  std::string left_out;             // a log line: which transport is not used, and why; "": none
};

// Fills `*flags` and returns nullopt, or prints an error or the help and returns the exit code. May
// look up the coordinator's name, to find this machine's address.
std::optional<int> ReadFlags(int argc, char** argv, WorkerFlags* flags);

// Whether flags.transports has this name.
bool Has(const WorkerFlags& flags, std::string_view transport);
// Returns the address at which a transport listens: the value of the transport's own flag
// (--grpc-address, ...), if given. Else the first listening transport has the data address, and
// every other transport has port 0 (any free port) of the same host.
std::string AddressOf(const WorkerFlags& flags, const TransportTraits& transport);
// Returns the first transport of the flags that may face strangers (run/kinds/transports.h), to
// which --advertise applies. Null: there is none.
const TransportTraits* FirstToFaceStrangers(const WorkerFlags& flags);

}  // namespace longhaul::worker
