// lead: which of two coordinators leads, for admins.
#include <CLI/CLI.hpp>
#include <string>

#include "cli/program.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::cli {
namespace {

struct LeadOptions {
  std::string to;
  bool alone = false;
};

StatusOr<int> Lead(Invocation& invocation, const LeadOptions& options) {
  v1::LeadRequest request;
  if (options.alone) {
    request.set_alone(true);
  } else {
    request.set_to(options.to);
  }
  LH_ASSIGN_OR_RETURN(const v1::LeadReply reply,
                      invocation.Get(&v1::SeatService::Stub::Lead, request));
  return invocation.PrintReply(reply, reply.said());
}

}  // namespace

void AddLeadCommand(Program& program) {
  const auto [lead, options] =
      program.AddCommand("lead", "Let the standby lead, or go on without it, for admins", Lead);
  CLI::Option_group* const what = lead->add_option_group("what");
  what->add_option("--to", options->to,
                   "HOST:PORT of the standby, as longhaul status has it: it leads from now on");
  what->add_flag("--alone", options->alone,
                 "The leader goes on alone, and the standby is not in sync before it starts again");
  what->require_option(1);
}

}  // namespace longhaul::cli
