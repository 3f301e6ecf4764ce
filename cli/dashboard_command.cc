// dashboard-key: what a browser needs to change runs in the dashboard.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <string>

#include "base/printable.h"
#include "base/units.h"
#include "cli/format.h"
#include "cli/program.h"
#include "longhaul/v1/observe.pb.h"

namespace longhaul::cli {
namespace {

struct DashboardKeyOptions {
  std::string life = "12h";
};

StatusOr<int> CreateDashboardKey(Invocation& invocation, const DashboardKeyOptions& options) {
  LH_ASSIGN_OR_RETURN(const absl::Duration life, ParseDuration(options.life));
  v1::DashboardKeyRequest request;
  request.set_seconds(absl::ToInt64Seconds(life));
  if (request.seconds() < 1) {
    return InvalidArgument("--ttl: expected at least a second, got {}", options.life);
  }
  LH_ASSIGN_OR_RETURN(const v1::DashboardKeyReply reply,
                      invocation.Get(&v1::ObserveService::Stub::CreateDashboardKey, request));
  const Terminal& terminal = invocation.terminal();
  if (!invocation.json() && terminal.err_is_terminal) {
    const std::string at = reply.address().empty()
                               ? "this coordinator has no dashboard; it was started without --http"
                               : "for Sign in at " + Printable(reply.address());
    terminal.err << fmt::format("{}, until {}; whoever has it acts as you", at,
                                TimeText(reply.until_unix_ms(), true))
                 << std::endl;
  }
  return invocation.PrintReply(reply, Printable(reply.key()));
}

}  // namespace

void AddDashboardCommand(Program& program) {
  const auto [command, options] = program.AddCommand(
      "dashboard-key",
      "Print a key with which you submit, stop and resume runs in the dashboard, as with your own "
      "commands",
      CreateDashboardKey);
  command
      ->add_option("--ttl", options->life,
                   "How long it counts: 30m, 12h, 7d; at most 30d, and no longer than the "
                   "coordinator's process")
      ->capture_default_str();
}

}  // namespace longhaul::cli
