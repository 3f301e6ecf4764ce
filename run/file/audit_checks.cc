// What audits need, and what they cannot compute again.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "run/file/run_spec_checks.h"
#include "run/kinds/schedules.h"

namespace longhaul::config {
namespace {

constexpr std::string_view kAuditShare = "audit.share";

void RefuseAudit(std::string_view what, Reader& reader) {
  reader.Fail(reader.PlaceOf(kAuditShare),
              fmt::format("{}: {}, or leave {} out", kAuditShare, what, kAuditShare));
}

void CheckAuditNeeds(const RunSpec& spec, Reader& reader) {
  if (reader.Sound({"verify.digests"}) && spec.verify.digests == DigestKind::kNone) {
    RefuseAudit("audits compare digests, and verify.digests is none; set it to sha256", reader);
  }
  if (reader.Sound({"recovery.spares"}) && spec.recovery.spares == 0) {
    RefuseAudit("a spare computes audits, and recovery.spares is 0; raise it", reader);
  }
  if (reader.Sound({"recovery.attempts"}) && spec.recovery.attempts == 0) {
    RefuseAudit("a failed audit makes the run go back, and recovery.attempts is 0; raise it",
                reader);
  }
  if (reader.Sound({"recovery.every", "checkpoint.every"}) && spec.recovery.every == 0u &&
      spec.checkpoint.every == 0) {
    RefuseAudit(
        "an audit begins from a saved state, and there is none between the run's ends; raise "
        "recovery.every or checkpoint.every",
        reader);
  }
}

// False: one of the codecs is refused.
bool CheckAuditedCodecs(const CodecPair& codecs, Reader& reader) {
  for (const CodecSpec* codec : {&codecs.forward, &codecs.backward}) {
    if (!codec->remembers_samples()) continue;
    RefuseAudit(
        fmt::format("what the codec {} remembers of each sample is in no checkpoint, so a spare "
                    "cannot decode its messages; choose another codec",
                    ToString(*codec)),
        reader);
    return false;
  }
  return true;
}

// What this version does not record, or cannot compute again on one spare.
void CheckAuditRecorded(const RunSpec& spec, Reader& reader) {
  if (reader.Sound({"pipeline.replicas"}) &&
      (spec.replicas.count > 1 || spec.replicas.count_auto)) {
    RefuseAudit("this version records no messages between replicas; set pipeline.replicas to 1",
                reader);
  }
  if (reader.Sound({"group.tensor", "group.expert"}) &&
      (spec.group.tensor > 1 || spec.group.tensor_auto || spec.group.expert > 1)) {
    RefuseAudit("in this version a spare computes no stage that ranks share; set group.tensor to 1",
                reader);
  }
  if (reader.Sound({"pipeline.schedule"}) && TraitsOf(spec.pipeline.schedule).overlaps_steps) {
    RefuseAudit(
        "this version audits no schedule whose steps overlap; choose another pipeline.schedule",
        reader);
  }
  if (reader.Sound({"model.tied", "pipeline.stages"}) && spec.model.TrainsTiedMatrix() &&
      spec.pipeline.stages != 1u) {
    RefuseAudit(
        "this version audits no matrix that two stages hold; set model.tied to split or false",
        reader);
  }
  if (CheckAuditedCodecs(spec.links.codecs, reader)) {
    for (const auto& [worker, exception] : spec.links.by_worker) {
      if (!CheckAuditedCodecs(exception.codecs, reader)) break;
    }
  }
}

}  // namespace

void CheckAudit(const RunSpec& spec, Reader& reader) {
  if (spec.audit.share == 0 || !reader.Sound({kAuditShare})) return;
  if (spec.replay) {
    RefuseAudit("a replay computes nothing that could be computed again; train", reader);
    return;
  }
  CheckAuditNeeds(spec, reader);
  CheckAuditRecorded(spec, reader);
}

}  // namespace longhaul::config
