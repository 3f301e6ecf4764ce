// Keys of the sections "verify" and "audit", and what their values need of each other.
#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "run/file/custom_values.h"
#include "run/file/keys.h"
#include "run/file/run_spec_checks.h"
#include "run/file/values.h"

namespace longhaul::config {
namespace {

bool HasDigests(const RunSpec& spec) {
  return spec.verify.digests != DigestKind::kNone;
}

}  // namespace

std::vector<Key> VerifyKeys() {
  return {
      {"verify.digests",
       Choice(LH_AT(verify.digests), {DigestKind::kNone, DigestKind::kXxh3, DigestKind::kSha256}),
       kNothing,
       "Digests of each training message, which both ends of an edge report: xxh3 finds damage, "
       "sha256 also lies"},
      {"verify.state",
       Whole(LH_AT(verify.state), 0, 1'000'000),
       kNothing,
       "Steps between digests of each stage's parameters and optimizer state; 0: none",
       {.unit = "steps", .applies = HasDigests}},
      {"verify.differs",
       Choice(LH_AT(verify.differs),
              {Contradicted::kWarn, Contradicted::kRepeat, Contradicted::kEvict}),
       kNothing,
       "What follows when digests contradict each other: an event, the steps again, or the steps "
       "again without the worker at fault",
       {.applies = HasDigests}},
      {"verify.keep",
       Bytes(LH_AT(verify.keep_bytes)),
       kNothing,
       "Host memory in which each worker keeps its newest messages as evidence",
       {.unit = "bytes", .applies = HasDigests}},
      {"verify.outliers",
       Choice(LH_AT(verify.outliers),
              {Implausible::kOff, Implausible::kWarn, Implausible::kRepeat, Implausible::kEvict}),
       kNothing,
       "What follows when a received activation or gradient is implausible: nothing, an event, the "
       "step again, or the step again without the sender"},
      {"audit.share", Real(LH_AT(audit.share), {.least = 0, .most = 1}), kNothing,
       "Part of all pairs of stage and step that another worker computes again; 0: none"},
  };
}

void CheckVerify(const RunSpec& spec, Reader& reader) {
  const Implausible outliers = spec.verify.outliers;
  if (spec.replay && (HasDigests(spec) || outliers != Implausible::kOff)) {
    reader.Fail(reader.PlaceOf(HasDigests(spec) ? "verify.digests" : "verify.outliers"),
                "verify: a replay computes nothing that could be verified; leave the section out");
  }
  if (spec.recovery.attempts > 0 || !reader.Sound({"recovery.attempts"})) return;
  const bool differs = HasDigests(spec) && spec.verify.differs != Contradicted::kWarn;
  const bool repeats = outliers == Implausible::kRepeat || outliers == Implausible::kEvict;
  if (!differs && !repeats) return;
  const std::string_view key = repeats ? "verify.outliers" : "verify.differs";
  reader.Fail(reader.PlaceOf(key),
              fmt::format("{}: {} trains steps again, and recovery.attempts 0 ends the run at the "
                          "first attempt; raise recovery.attempts, or set {} to warn",
                          key, repeats ? ToString(outliers) : ToString(spec.verify.differs), key));
}

}  // namespace longhaul::config
