// Flags of daemons that serve metrics (base/metrics/endpoint.h).
#pragma once

#include <string>
#include <string_view>

#include "base/metrics/endpoint.h"
#include "base/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace longhaul {

struct MetricsFlags {
  std::string address, token_file, certificate_file, key_file;  // empty: not given
  bool dump = false;  // print what metrics there are, and end
};

// Adds --metrics and its companions. `example`: an address for the help text.
void AddMetricsFlags(CLI::App& app, MetricsFlags* flags, std::string_view example);
// Returns what is wrong with the flags, for wrong usage; "": nothing.
std::string ProblemOf(const MetricsFlags& flags);
// Reads the token. Errors: those of LoadToken, which name the flag.
StatusOr<metrics::EndpointOptions> OptionsOf(const MetricsFlags& flags);

}  // namespace longhaul
