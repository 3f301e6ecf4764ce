#include "coordinator/state/life/link_troubles.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "codec/codec_string.h"
#include "coordinator/state/ledger/sane.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {

namespace {

// What the codecs of the edge, one of which has state, remember.
std::string_view WhatIsRemembered(const Edge& edge) {
  return edge.forward.codec.predicts_by_tokens() ? "tables of tokens" : "message buffers";
}

}  // namespace

void LinkTroubles::OnLink(Run& run, const StageRecord& stage, const v1::LinkEvent& link) {
  const Edge* edge = run.assignment().Find(EdgeId(link.edge()));
  if (edge == nullptr || (edge->from != stage.id && edge->to != stage.id)) return;
  const std::string pair = fmt::format("{} and {}", ledger_.Label(stage),
                                       ledger_.Label(*run.Find(edge->PeerOf(stage.id))));
  std::map<EdgeId, LinkTrouble>& troubles = of_[run];
  const auto known = troubles.find(edge->id);
  const bool troubled = known != troubles.end() && known->second.stages.contains(stage.id);
  if (link.state() == "suspect") {
    if (troubled) return;
    ledger_.Count(FaultKind::kLinkSuspect);
    troubles[edge->id].stages[stage.id] = false;
    ledger_.Log(&run, "link", "the link between {} is suspect: silent for {:.1f} s", pair,
                Sane(link.silence_seconds()));
  } else if (link.state() == "lost") {
    LinkTrouble& trouble = troubles[edge->id];
    const bool told = std::any_of(trouble.stages.begin(), trouble.stages.end(),
                                  [](const auto& one) { return one.second; });
    trouble.stages[stage.id] = true;
    trouble.lost_at = ledger_.now();
    if (told) return;
    ledger_.Count(FaultKind::kLinkLost);
    ledger_.Log(&run, "link", "the link between {} is lost and being made again: {}", pair,
                Quoted(link.reason()));
  } else if (link.state() == "healthy") {
    if (!troubled) return;
    known->second.stages.erase(stage.id);
    if (known->second.stages.empty()) troubles.erase(known);
    ledger_.Log(&run, "link", "the link between {} is healthy again", pair);
  } else if (link.state() == "forgotten") {
    ledger_.Log(&run, "link",
                "the {} between {} begin anew: they could not be brought back to "
                "the checkpoint of step {}, so the losses may differ from an unbroken run's",
                WhatIsRemembered(*edge), pair, run.assignment().start_step);
  } else if (link.state() == "healed") {
    if (known == troubles.end()) return;  // the other side has told of it
    OnHealed(run, stage, link, pair);
  }
  ledger_.Changed(run);
}

// Logs one event for both sides, when the last side that missed the other has it again.
void LinkTroubles::OnHealed(Run& run, const StageRecord& stage, const v1::LinkEvent& link,
                            const std::string& pair) {
  std::map<EdgeId, LinkTrouble>& troubles = of_[run];
  const auto known = troubles.find(EdgeId(link.edge()));
  LinkTrouble& trouble = known->second;
  trouble.stages.erase(stage.id);
  trouble.away_seconds = std::max(trouble.away_seconds, Sane(link.silence_seconds()));
  trouble.frames_resent += link.frames_resent();
  if (!trouble.stages.empty()) return;
  ledger_.Log(&run, "link", "the link between {} is healed after {:.1f} s, {} frames sent again",
              pair, trouble.away_seconds, trouble.frames_resent);
  troubles.erase(known);
}

void LinkTroubles::ForgetWordOf(const Run& run, const StageRecord& stage) {
  std::map<EdgeId, LinkTrouble>& troubles = of_[run];
  for (auto& [edge, trouble] : troubles) trouble.stages.erase(stage.id);
  std::erase_if(troubles, [](const auto& entry) { return entry.second.stages.empty(); });
}

const LinkTrouble* LinkTroubles::Find(const Run& run, EdgeId edge) const {
  const std::map<EdgeId, LinkTrouble>& troubles = of_.Of(run);
  const auto found = troubles.find(edge);
  return found == troubles.end() ? nullptr : &found->second;
}

void LinkTroubles::OnMove(Run& run, const Transition& row) {
  if (EndsEpoch(row) || HasEnded(row.to)) of_.Forget(run.record.id);
}

}  // namespace longhaul::coordinator
