#include "run/data/sample_order.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "run/tokens/token_file.h"

namespace longhaul::data {
namespace {

class Shuffled final : public SampleOrder {
 public:
  Shuffled(uint64_t seed, uint64_t windows) : seed_(seed), windows_(windows) {}
  uint64_t windows() const override { return windows_; }
  uint64_t WindowOf(uint64_t sequence) override {
    return TrainingWindowOf(seed_, sequence, windows_);
  }

 private:
  const uint64_t seed_, windows_;
};

// Different numbers give orders that have nothing to do with each other.
uint64_t SeedOf(uint64_t seed, uint64_t source, uint64_t pass, uint64_t group) {
  uint64_t mixed = seed;
  for (const uint64_t part : {source, pass, group}) {
    mixed = (mixed ^ part) * 0x9E3779B97F4A7C15ull;
    mixed ^= mixed >> 29;
  }
  return mixed;
}

// Place `index` of a permutation of `count` numbers.
uint64_t Permuted(uint64_t seed, uint64_t index, uint64_t count) {
  return TrainingWindowOf(seed, index, count);  // of its first pass
}

// A source's windows, block by block.
class BlockOrder {
 public:
  BlockOrder(uint64_t seed, uint64_t source, uint64_t windows, uint64_t windows_per_block,
             uint64_t blocks_per_group)
      : seed_(seed),
        source_(source),
        windows_(windows),
        blocks_((windows + windows_per_block - 1) / windows_per_block),
        blocks_per_group_(blocks_per_group) {}

  uint64_t WindowOf(uint64_t index) {
    const uint64_t pass = index / windows_;
    if (!pass_ || pass_->number != pass) pass_ = MakePass(pass);
    uint64_t place = index % windows_;
    const auto& starts = pass_->group_starts;
    const auto group = static_cast<uint64_t>(std::upper_bound(starts.begin(), starts.end(), place) -
                                             starts.begin() - 1);
    const uint64_t size = starts[group + 1] - starts[group];
    place = Permuted(SeedOf(seed_, source_, pass, group + 1), place - starts[group], size);
    for (uint64_t i = group * blocks_per_group_;; ++i) {
      const uint64_t block = pass_->blocks[i];
      if (place < SizeOf(block)) return Begin(block) + place;
      place -= SizeOf(block);
    }
  }

 private:
  struct Pass {
    uint64_t number = 0;
    std::vector<uint64_t> blocks;        // in their order
    std::vector<uint64_t> group_starts;  // places; the last one is the end
  };
  // Blocks differ by a window at most.
  uint64_t Begin(uint64_t block) const {
    const uint64_t least = windows_ / blocks_, longer = windows_ % blocks_;
    return block * least + std::min(block, longer);
  }
  uint64_t SizeOf(uint64_t block) const { return Begin(block + 1) - Begin(block); }

  Pass MakePass(uint64_t number) const {
    Pass pass{.number = number, .blocks = {}, .group_starts = {}};
    const uint64_t seed = SeedOf(seed_, source_, number, 0);
    uint64_t place = 0;
    for (uint64_t i = 0; i < blocks_; ++i) {
      if (i % blocks_per_group_ == 0) pass.group_starts.push_back(place);
      pass.blocks.push_back(Permuted(seed, i, blocks_));
      place += SizeOf(pass.blocks.back());
    }
    pass.group_starts.push_back(place);
    return pass;
  }

  const uint64_t seed_, source_, windows_, blocks_, blocks_per_group_;
  std::optional<Pass> pass_;
};

class Mixed final : public SampleOrder {
 public:
  static constexpr uint64_t kCycle = Mixture::kMostSources;  // sequences

  Mixed(const Mixture& mixture, uint32_t context, double validation_share, uint64_t seed,
        uint64_t memory_bytes)
      : sources_(WindowsOfSources(mixture, context, validation_share)) {
    const uint64_t memory = memory_bytes / mixture.sources.size();
    for (size_t i = 0; i < sources_.size(); ++i) {
      const DataSet& set = mixture.sources[i].set;
      const uint64_t chunk_tokens = set.chunk_bytes / set.bytes_per_token;
      // A block may lie in two chunks; the next group's are fetched while one is read.
      const uint64_t blocks = std::max<uint64_t>(1, memory / (4 * set.chunk_bytes));
      orders_.emplace_back(seed, i, sources_[i].training,
                           std::max<uint64_t>(1, chunk_tokens / context), blocks);
      windows_ += sources_[i].training;
    }
    FillCycle(mixture, seed);
  }

  uint64_t windows() const override { return windows_; }
  uint64_t WindowOf(uint64_t sequence) override {
    const Slot& slot = cycle_[sequence % kCycle];
    const uint64_t index = sequence / kCycle * slots_of_[slot.source] + slot.rank;
    return sources_[slot.source].first + orders_[slot.source].WindowOf(index);
  }

 private:
  struct Slot {
    uint32_t source = 0;
    uint32_t rank = 0;  // among the slots of this source
  };

  // As many slots for each source as its weight says, by largest remainders, at least one; in any
  // order.
  void FillCycle(const Mixture& mixture, uint64_t seed) {
    LH_CHECK(mixture.sources.size() <= kCycle, "{} sources", mixture.sources.size());
    double sum = 0;
    for (const Source& source : mixture.sources) sum += source.weight;
    std::vector<double> rest;
    uint64_t taken = 0;
    for (const Source& source : mixture.sources) {
      const double exact = source.weight / sum * static_cast<double>(kCycle);
      slots_of_.push_back(std::max<uint64_t>(1, static_cast<uint64_t>(exact)));
      rest.push_back(exact - static_cast<double>(slots_of_.back()));
      taken += slots_of_.back();
    }
    const auto most = [&] { return std::max_element(rest.begin(), rest.end()) - rest.begin(); };
    for (; taken < kCycle; ++taken) {
      const auto source = most();
      ++slots_of_[source];
      rest[source] -= 1;
    }
    for (; taken > kCycle; --taken) --*std::max_element(slots_of_.begin(), slots_of_.end());
    std::vector<uint32_t> in_order;
    for (uint32_t source = 0; source < slots_of_.size(); ++source) {
      in_order.insert(in_order.end(), slots_of_[source], source);
    }
    std::vector<uint32_t> ranks(slots_of_.size(), 0);
    for (uint64_t i = 0; i < kCycle; ++i) {
      const uint32_t source = in_order[Permuted(seed, i, kCycle)];
      cycle_[i] = {source, ranks[source]++};
    }
  }

  const std::vector<SourceWindows> sources_;
  std::vector<BlockOrder> orders_;
  uint64_t windows_ = 0;
  std::vector<uint64_t> slots_of_;
  std::array<Slot, kCycle> cycle_;
};

}  // namespace

std::unique_ptr<SampleOrder> ShuffledOrder(uint64_t seed, uint64_t windows) {
  return std::make_unique<Shuffled>(seed, windows);
}

std::vector<SourceWindows> WindowsOfSources(const Mixture& mixture, uint32_t context,
                                            double validation_share) {
  std::vector<SourceWindows> all;
  uint64_t first = 0;
  for (const Source& source : mixture.sources) {
    const uint64_t tokens = source.set.training.tokens();
    SourceWindows one{.first = first,
                      .training = 0,
                      .validation = WindowsOf(source.set.validation.tokens(), context),
                      .training_tokens = tokens};
    if (source.set.validation.shards.empty() && validation_share > 0) {
      // Whole windows, so that a packed set's validation begins where a document does.
      const auto cut =
          static_cast<uint64_t>(static_cast<double>(tokens) * validation_share) / context * context;
      const uint64_t kept = (tokens - cut) / context * context;
      one.training_tokens = cut == 0 ? tokens : kept;
      one.validation = WindowsOf(tokens - one.training_tokens, context);
    }
    // The last window's last target may be the first token of what follows.
    one.training =
        one.training_tokens == tokens ? WindowsOf(tokens, context) : one.training_tokens / context;
    first += one.training;
    all.push_back(one);
  }
  return all;
}

std::unique_ptr<SampleOrder> MixedOrder(const Mixture& mixture, uint32_t context,
                                        double validation_share, uint64_t seed,
                                        uint64_t memory_bytes) {
  return std::make_unique<Mixed>(mixture, context, validation_share, seed, memory_bytes);
}

}  // namespace longhaul::data
