// What the suite knows of a backend, and one rank of a group of it. A backend joins with a row:
// who makes its communicators, where its memory lies, and what of results it promises. Test bodies
// know nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "tests/support/quiet.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"

namespace longhaul::collective {

inline constexpr absl::Duration kPatience = absl::Seconds(60);
// A group ends within two seconds.
inline absl::Duration EndLimit() {
  return testing::QuietLimit(absl::Seconds(2), absl::Seconds(30));
}

// The memory that a rank's calls take, and its queue. One thread.
class Memory {
 public:
  virtual ~Memory() = default;
  // At 16 bytes; lives as long as the Memory.
  virtual StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual Status Upload(std::span<const std::byte> from, void* to) = 0;
  virtual Status Download(const void* from, std::span<std::byte> to) = 0;
  virtual Queue queue() = 0;
};
std::unique_ptr<Memory> NewHostMemory();

struct RankSettings {
  // What a call waits for the others; backends whose calls return at once have it in Wait.
  absl::Duration call_limit = kPatience;
};

struct Backend {
  std::string name;
  uint32_t max_ranks = kMaxRanks;
  // Sums are made in fp32 in the order of ranks and rounded once: the very bits are compared.
  bool rank_order = true;
  // Otherwise: largest error of a sum, beside rounding, as a share of the largest input times the
  // ranks.
  double sum_error = 0;
  // Largest error of what is only copied (never of bytes), as a share of the largest input. 0: the
  // same bits.
  double copy_error = 0;
  // Calls that do not fit each other end the group with a sentence.
  bool names_mismatches = true;
  // A maximum with a NaN is a NaN.
  bool keeps_nans = true;
  // A rank that does not come in time is named.
  bool names_late_ranks = true;
  // The calls that the backend supports; the rest is kUnimplemented. Null: all.
  std::function<bool(Op, Dtype, Reduction)> has;
  // Both on the rank's own thread.
  std::function<StatusOr<std::unique_ptr<Memory>>(uint32_t rank)> memory;
  std::function<StatusOr<std::unique_ptr<Communicator>>(std::shared_ptr<Member>, Memory&,
                                                        const RankSettings&, Deadline)>
      create;

  bool Has(Op op, Dtype dtype, Reduction reduction) const {
    return !has || has(op, dtype, reduction);
  }
};
// Each test program defines its backends.
const std::vector<Backend>& Backends();

class Rank {
 public:
  static StatusOr<std::unique_ptr<Rank>> Join(const Backend& backend, const std::string& id,
                                              const Place& place, const RankSettings& settings);

  const Backend& backend() const { return backend_; }
  uint32_t number() const { return member_->place().rank; }
  uint32_t size() const { return member_->place().size; }
  Communicator& communicator() { return *communicator_; }
  Member& member() { return *member_; }
  Queue queue() { return memory_->queue(); }

  // Buffers of the backend's memory; they end the program where there is none.
  void* Room(size_t bytes);
  void* Put(std::span<const std::byte> bytes);
  std::vector<std::byte> Get(const void* data, size_t bytes);

  // What a call has come to when its result is there.
  Status Await(const Status& called);
  // Gives the communicator back, then the member.
  void Leave();

 private:
  explicit Rank(const Backend& backend) : backend_(backend) {}
  const Backend& backend_;
  RankSettings settings_;
  std::unique_ptr<Memory> memory_;
  std::shared_ptr<Member> member_;
  std::unique_ptr<Communicator> communicator_;
};

// A call of every operation, the same on all ranks, for tests of what happens in the middle.
struct NamedCall {
  std::string name;
  // With `count` elements to each rank; both buffers have room for size() x count bf16.
  std::function<Status(Rank&, void* in, void* out, uint64_t count)> call;
};
const std::vector<NamedCall>& AllCalls();
// The calls of AllCalls that the backend supports.
std::vector<NamedCall> CallsOf(const Backend& backend);

}  // namespace longhaul::collective
