#include "cli/leadership_view.h"

#include <fmt/core.h>

#include "base/printable.h"
#include "base/units.h"
#include "cli/format.h"

namespace longhaul::cli {
namespace {

using Standby = v1::LeadershipInfo::Standby;

std::string LeaderText(const v1::LeadershipInfo& info, bool terminal) {
  std::string text = fmt::format("{}, term {}", Printable(info.address()), info.term());
  if (info.since_unix_ms() > 0) text += ", since " + TimeText(info.since_unix_ms(), terminal);
  if (info.sure()) return text;
  return text + "; takes no changes now: " + Printable(info.why_unsure());
}

std::string Lacks(const Standby& standby) {
  std::string text;
  if (standby.behind_changes() != 0) {
    text = fmt::format(", {} changes behind", standby.behind_changes());
  }
  if (standby.missing_blobs() != 0) {
    text += fmt::format(", lacks {} files ({})", standby.missing_blobs(),
                        longhaul::FormatBytes(static_cast<double>(standby.missing_bytes())));
  }
  return text;
}

std::string StandbyText(const Standby& standby) {
  const std::string address = Printable(standby.address());
  switch (standby.state()) {
    case Standby::AWAY:
      return fmt::format("{} does not follow now{}", address, Lacks(standby));
    case Standby::COPYING:
      return fmt::format("{} gets a copy of everything{}", address, Lacks(standby));
    case Standby::IN_SYNC:
      return fmt::format("{} has every change{}", address, Lacks(standby));
    default:
      return "none";
  }
}

std::string WitnessText(const v1::LeadershipInfo& info) {
  const v1::LeadershipInfo::Witness& witness = info.witness();
  if (witness.name().empty()) {
    return info.standby().state() == Standby::NONE
               ? "none"
               : "none, so the standby does not take over by itself";
  }
  if (witness.heard_seconds() < 0) return Printable(witness.name()) + ", not heard yet";
  return fmt::format("{}, heard {} ago", Printable(witness.name()),
                     longhaul::FormatDuration(absl::Seconds(witness.heard_seconds())));
}

}  // namespace

std::string LeadershipText(const v1::InfoReply& info, bool terminal) {
  const v1::LeadershipInfo& leads = info.leadership();
  std::string text = fmt::format(
      "leader   {}\nstandby  {}\nwitness  {}\nworkers  {} connected; longhaul {}\n",
      info.has_leadership() ? LeaderText(leads, terminal) : "not said",
      StandbyText(leads.standby()), WitnessText(leads), info.workers(), Printable(info.version()));
  if (leads.unstored())
    text += "the newest changes are not stored yet: the disk or the standby is slow\n";
  if (!leads.notes().empty()) text += PrintableLines(leads.notes()) + "\n";
  return text;
}

StatusOr<int> ShowLeadership(Invocation& invocation) {
  LH_ASSIGN_OR_RETURN(const v1::InfoReply info,
                      invocation.Get(&v1::ControlService::Stub::Info, v1::InfoRequest()));
  if (invocation.json()) {
    invocation.PrintJson(info);
  } else {
    invocation.terminal().out << LeadershipText(info, invocation.terminal().out_is_terminal);
  }
  return kDone;
}

}  // namespace longhaul::cli
