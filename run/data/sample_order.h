// Maps sequence k of a run to a window of its training tokens. A sequence is one row of a
// microbatch; k counts from 0 over the whole run. A window is `context` + 1 consecutive tokens
// (token_file.h); windows are numbered from 0 over all training tokens of a run, source by source.
// The map depends only on its arguments. So every stage knows the order without messages, and a
// resumed run goes on exactly where it stopped.
//
// Threads: one at a time for each object. Objects keep no reference to their arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "run/data/data_set.h"

namespace longhaul::data {

class SampleOrder {
 public:
  virtual ~SampleOrder() = default;
  virtual uint64_t windows() const = 0;  // number of training windows
  virtual uint64_t WindowOf(uint64_t sequence) = 0;
};

// Returns an order that gives every window once in each pass over the data, in an order that
// depends on (seed, pass). `windows`: at least 1.
std::unique_ptr<SampleOrder> ShuffledOrder(uint64_t seed, uint64_t windows);

// The range of one source's windows in a mixture.
struct SourceWindows {
  uint64_t first = 0;       // number of its first window
  uint64_t training = 0;    // windows
  uint64_t validation = 0;  // windows, with numbers of their own
  // Number of training tokens. If the source has no validation list, the tokens after these are for
  // validation.
  uint64_t training_tokens = 0;
};
// Returns the windows of each source, in the order of the mixture's sources. `validation_share`:
// the share of tokens that is cut off the end of sources without a validation list; 0: none.
std::vector<SourceWindows> WindowsOfSources(const Mixture& mixture, uint32_t context,
                                            double validation_share);

// Returns an order that takes sequences from sources by weight: of every 1,024 sequences each
// source gets its share, rounded to whole sequences, but at least one. Each source is cut into
// blocks of about one chunk. The blocks come in an order that depends on the seed and on the
// source's pass, and windows are shuffled within groups of consecutive blocks. A group is so small
// that a reader can keep its chunks and fetch the chunks of the next group within `memory_bytes`.
// The mixture must have passed CheckMixture.
std::unique_ptr<SampleOrder> MixedOrder(const Mixture& mixture, uint32_t context,
                                        double validation_share, uint64_t seed,
                                        uint64_t memory_bytes);

}  // namespace longhaul::data
