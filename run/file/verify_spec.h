// How a run finds workers that compute wrongly or lie: sections "verify" and "audit" of the run
// file. Plain data.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/words.h"

namespace longhaul {

// How both ends of an edge compute the digests of training messages, 8 bytes each.
enum class DigestKind : uint8_t {
  kNone,
  kXxh3,    // finds damage; whoever knows the message can make another one with the same digest
  kSha256,  // the first 8 bytes of SHA-256
};
constexpr std::string_view ToString(DigestKind kind) {
  return WordOf(kind, {"none", "xxh3", "sha256"});
}

// What follows when digests contradict each other.
enum class Contradicted : uint8_t {
  kWarn,    // an event
  kRepeat,  // the run goes back to the newest checkpoint before, and trains the steps again
  kEvict,   // the same, without the worker that is at fault where that is known
};
constexpr std::string_view ToString(Contradicted what) {
  return WordOf(what, {"warn", "repeat", "evict"});
}

// What follows when a received activation or gradient is implausible.
enum class Implausible : uint8_t { kOff, kWarn, kRepeat, kEvict };
constexpr std::string_view ToString(Implausible what) {
  return WordOf(what, {"off", "warn", "repeat", "evict"});
}

struct VerifySpec {
  DigestKind digests = DigestKind::kNone;
  uint32_t state = 1;  // steps between digests of each stage's state; 0: none
  Contradicted differs = Contradicted::kEvict;
  Implausible outliers = Implausible::kOff;
  uint64_t keep_bytes = uint64_t{256} << 20;  // host memory of a worker for its newest messages

  // Whether stages compute digests of their state around `step`.
  bool DigestsStateOf(uint64_t step) const {
    return digests != DigestKind::kNone && state > 0 && step % state == 0;
  }
  friend bool operator==(const VerifySpec&, const VerifySpec&) = default;
};

struct AuditSpec {
  // The part of all pairs of stage and step that others compute again; 0: none.
  double share = 0;
  friend bool operator==(const AuditSpec&, const AuditSpec&) = default;
};

}  // namespace longhaul
