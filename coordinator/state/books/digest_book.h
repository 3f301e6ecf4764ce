// Compares the digests that the stages of one attempt at a run ("epoch") report: both ends of an
// edge must have the same digests of each message, and a stage's state before an update must be
// that after the update before. Pure data; not thread-safe.
//
//   for (const Contradiction& one : book.Take(assignment, spec.verify, cell, report, signature))
//   ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "coordinator/state/ids.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/verify_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Bytes of digests of a run that wait for their other end. More means that one end is far ahead.
inline constexpr size_t kMostWaitingBytes = 32 << 20;

struct Contradiction {
  enum class Kind : uint8_t {
    kEdgeDiffers,   // the two ends of an edge have other digests of a message
    kStateDiffers,  // a stage's state changed between two updates
    kWithheld,      // a report has no digests, or a step's report is missing
    kUnsigned,      // the member's key has not signed the digests
    kMalformed,     // digests that are none, or not those of the step
  };
  Kind kind = Kind::kEdgeDiffers;
  uint64_t step = 0;
  CellId cell;  // kEdgeDiffers: the sender
  // kEdgeDiffers: the edge, the receiver, and the first messages that differ, of `messages`, from
  // 0.
  EdgeId edge{0};
  CellId receiver = {};
  Direction direction = Direction::kForward;
  uint32_t first = 0, last = 0, messages = 0;
  std::string what = {};  // kWithheld, kMalformed: a sentence without its full stop

  // Whether the cell is at fault for certain. Of an edge that differs, either end may be.
  bool names_cell() const { return kind != Kind::kEdgeDiffers; }
};

class DigestBook {
 public:
  // Takes a stage's report of a step. Reports of a cell come in the order of its steps; a report
  // that came before is ignored. Returns what contradicts it, of which each pair of ends is found
  // once.
  std::vector<Contradiction> Take(const Assignment& assignment, const VerifySpec& verify,
                                  const CellId& cell, const v1::StepReport& report,
                                  Signature signature);
  // The newest step that the cell has reported; nullopt: none.
  std::optional<uint64_t> LastOf(const CellId& cell) const;
  // Number of edges and directions of steps that wait for their other end.
  size_t waiting() const { return waiting_.size(); }

 private:
  // A step's messages over an edge in one direction, of one end.
  struct OneEnd {
    bool sent = false;
    uint32_t messages = 0;
    std::vector<uint64_t> digests;
    size_t bytes() const { return sizeof(*this) + digests.size() * sizeof(uint64_t); }
  };
  struct OfCell {
    uint64_t step = 0;                    // reported last
    std::optional<uint64_t> state_after;  // of that step
  };
  // Step, edge, and whether it is the forward direction.
  using Key = std::pair<uint64_t, std::pair<EdgeId, bool>>;

  std::optional<Contradiction> Compare(const Assignment& assignment, uint64_t step,
                                       const v1::EdgeDigests& one);
  // Forgets ends whose other ones will not come, and what is too much.
  void DropWaiting(const Assignment& assignment);
  std::map<Key, OneEnd> waiting_;
  size_t waiting_bytes_ = 0;
  std::map<CellId, OfCell> cells_;
};

}  // namespace longhaul::coordinator
