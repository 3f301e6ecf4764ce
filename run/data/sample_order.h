// Which window sequence k of a run reads: a pure function, so that every stage knows it without
// talking, and a resumed run goes on exactly where it was. Windows count over all of a run's
// training tokens.
//
// One thread at a time.
#ifndef LONGHAUL_RUN_DATA_SAMPLE_ORDER_H_
#define LONGHAUL_RUN_DATA_SAMPLE_ORDER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "run/data/data_set.h"

namespace longhaul::data {

class SampleOrder {
 public:
  virtual ~SampleOrder() = default;
  virtual uint64_t windows() const = 0;
  virtual uint64_t WindowOf(uint64_t sequence) = 0;
};

// All windows once in each pass, in an order that (seed, pass) gives.
std::unique_ptr<SampleOrder> ShuffledOrder(uint64_t seed, uint64_t windows);

// The windows of one source among those of a mixture.
struct SourceWindows {
  uint64_t first = 0;       // its first one's number
  uint64_t training = 0;    // windows
  uint64_t validation = 0;  // windows, counted apart
  // In the source's training list; later tokens are its validation where it has no list for that.
  uint64_t training_tokens = 0;
};
// `validation_share`: of a source that has no validation list, cut off its end; 0: none.
std::vector<SourceWindows> WindowsOfSources(const Mixture& mixture, uint32_t context,
                                            double validation_share);

// Sequences come from the sources by their weights, exactly in each 1,024. Of each source blocks of
// about a chunk are read in an order that (seed, pass) gives; the windows of so many blocks as
// `memory_bytes` hold are mixed. So whoever reads in this order needs that memory, and every chunk
// once in a pass.
std::unique_ptr<SampleOrder> MixedOrder(const Mixture& mixture, uint32_t context,
                                        double validation_share, uint64_t seed,
                                        uint64_t memory_bytes);

}  // namespace longhaul::data

#endif  // LONGHAUL_RUN_DATA_SAMPLE_ORDER_H_
