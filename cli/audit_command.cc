// audit: who did what at the coordinator, for admins.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/units.h"
#include "cli/format.h"
#include "cli/program.h"
#include "cli/table.h"
#include "longhaul/v1/member.pb.h"

namespace longhaul::cli {
namespace {

struct AuditOptions {
  std::string since, member;
};

std::string Known(const std::string& text) {
  return text.empty() ? "-" : text;
}

StatusOr<int> ShowAudit(Invocation& invocation, const AuditOptions& options) {
  v1::ListAuditRequest request;
  request.set_member(options.member);
  if (!options.since.empty()) {
    LH_ASSIGN_OR_RETURN(const absl::Duration ago, ParseDuration(options.since));
    request.set_since_unix_ms(absl::ToUnixMillis(absl::Now() - ago));
  }
  const Terminal& terminal = invocation.terminal();
  Table table({{"TIME"}, {"MEMBER"}, {"ROLE"}, {"ADDRESS"}, {"ACTION"}, {"OBJECT"}, {"OUTCOME"}});
  while (true) {
    LH_ASSIGN_OR_RETURN(const v1::ListAuditReply page,
                        invocation.Get(&v1::MemberService::Stub::ListAudit, request));
    for (const v1::AuditEntry& entry : page.entries()) {
      request.set_after(entry.sequence());
      if (invocation.json()) {
        invocation.PrintJsonLine(entry);
        continue;
      }
      table.AddRow({TimeText(entry.unix_ms(), terminal.out_is_terminal), Known(entry.member()),
                    Known(entry.role()), Known(entry.address()), entry.action(),
                    Known(entry.object()), entry.outcome()});
    }
    if (page.entries().empty()) break;
  }
  if (!invocation.json()) table.Print(terminal);
  return kDone;
}

}  // namespace

void AddAuditCommand(Program& program) {
  const auto [audit, options] = program.AddCommand(
      "audit", "Who did what: joins, changes of members and runs, refused calls; for admins",
      ShowAudit);
  audit->add_option("--since", options->since, "Only what is not older: 10m, 1h, 7d");
  audit->add_option("--member", options->member,
                    "Only what this member did, or what was done to it");
}

}  // namespace longhaul::cli
