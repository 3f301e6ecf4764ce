// Compares what a stage has reported of some steps with what an audit of the same steps gives.
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

// What is known of a stage's work between two states.
struct AuditedWork {
  std::vector<v1::StepReport> steps;      // all steps in between, in their order
  std::vector<v1::CheckpointFile> files;  // of the second state
};

// Returns why the two cannot be compared, as a sentence without its full stop; "": they can. Bits
// are promised only where both computed with the same numerics (worker/epoch/numerics.h).
std::string WhyIncomparable(const AuditedWork& said, const AuditedWork& audited);

struct AuditDifference {
  uint64_t step = 0;  // the first one that differs
  std::string what;   // "the loss was 2.5 and should be 2.75", without a full stop
};
// Returns the first difference; nullopt: there is none. Both sides must be comparable.
std::optional<AuditDifference> DifferenceOf(const AuditedWork& said, const AuditedWork& audited);

}  // namespace longhaul::coordinator
