#include "run/boundary/message_footprint.h"

#include <algorithm>
#include <limits>

#include "codec/messages/file_store.h"
#include "run/boundary/boundary_shape.h"

namespace longhaul {
namespace {

uint64_t VisitsPerStep(const RunSpec& spec) {
  return uint64_t{spec.train.microbatches} * spec.train.microbatch_size;
}

uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  const bool overflows = __builtin_mul_overflow(a, b, &product);
  return overflows ? std::numeric_limits<uint64_t>::max() / 4 : product;
}

}  // namespace

uint32_t RecordsOfWindow(const RunSpec& spec, Direction direction) {
  return BoundaryShape(spec, direction).samples / spec.train.microbatch_size;
}

MessageFootprint FootprintOf(const RunSpec& spec, uint64_t windows, size_t record_bytes,
                             Direction direction) {
  const uint64_t copies = RecordsOfWindow(spec, direction);
  const uint64_t samples = Times(copies, windows), visits_per_step = copies * VisitsPerStep(spec);
  const uint64_t visits = Times(spec.train.steps, visits_per_step);
  // A checkpoint's records are forgotten once the next one is written and it has been dropped.
  const uint64_t steps =
      spec.checkpoint.every == 0
          ? spec.train.steps
          : std::min(spec.train.steps, Times(spec.checkpoint.every, spec.checkpoint.keep + 2));
  // Nothing is overwritten when a sample comes for the first time.
  const uint64_t overwritten =
      std::min(visits - std::min(visits, samples), Times(steps, visits_per_step));
  constexpr uint64_t kOfAFile = 4096;
  return {.records = codec::FileStore::FileBytes(samples, record_bytes),
          .journal = Times(overwritten, codec::UndoJournal::EntryBytes(record_bytes)) +
                     Times(Times(steps, visits_per_step), codec::UndoJournal::EntryBytes(0)) +
                     Times(steps, kOfAFile)};
}

double ShareOfFirstVisits(const RunSpec& spec, uint64_t windows) {
  const uint64_t visits = Times(spec.train.steps, VisitsPerStep(spec));
  return visits == 0 ? 1
                     : static_cast<double>(std::min(visits, windows)) / static_cast<double>(visits);
}

}  // namespace longhaul
