#include "tests/conformance/collective/cases.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"

namespace longhaul::collective {
namespace {

using Bytes = std::vector<std::byte>;

// Behind every output, and what is there stays.
constexpr size_t kGuardBytes = 64;
constexpr auto kGuard = std::byte{0xa5};

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}
uint64_t Random(uint64_t seed, uint64_t stream, uint64_t index) {
  return Mix(Mix(seed * 0x9e3779b97f4a7c15 + stream) + index * 0x9e3779b97f4a7c15);
}

bool IsReduction(const Case& test) {
  return test.op == Op::kAllReduce || test.op == Op::kReduceScatter;
}

float Load(const std::byte* at, Dtype dtype) {
  if (dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return dtype == Dtype::kF16 ? F16ToF32(value) : Bf16ToF32(value);
}

void Store(float value, Dtype dtype, std::byte* at) {
  if (dtype == Dtype::kF32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const uint16_t half = dtype == Dtype::kF16 ? F32ToF16(value) : F32ToBf16(value);
  std::memcpy(at, &half, sizeof(half));
}

// Numbers of magnitudes from 2^-6 to 2^6, whose sum depends on the order; or any bits at all.
Bytes Contents(const Case& test, uint64_t stream, uint64_t count, bool any_bits) {
  const size_t element = BytesPerElement(test.dtype);
  Bytes bytes(count * element);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t random = Random(test.seed, stream, i);
    std::byte* const at = bytes.data() + i * element;
    if (any_bits || test.dtype == Dtype::kBytes) {
      std::memcpy(at, &random, element);
      continue;
    }
    const auto exponent = static_cast<uint32_t>(121 + random % 13);
    const auto sign = static_cast<uint32_t>(random >> 63) << 31;
    const auto fraction = static_cast<uint32_t>(random >> 40) & 0x7fffff;
    Store(std::bit_cast<float>(sign | exponent << 23 | fraction), test.dtype, at);
  }
  return bytes;
}

Bytes Reference(const std::vector<Bytes>& inputs, const Case& test) {
  const size_t element = BytesPerElement(test.dtype);
  Bytes result(inputs[0].size());
  for (size_t at = 0; at < result.size(); at += element) {
    float value = Load(inputs[0].data() + at, test.dtype);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const float next = Load(inputs[rank].data() + at, test.dtype);
      if (test.reduction == Reduction::kSum) {
        value += next;
      } else if (!std::isnan(value) && !(value > next)) {
        value = next;
      }
    }
    Store(value, test.dtype, result.data() + at);
  }
  return result;
}

double Epsilon(Dtype dtype) {
  if (dtype == Dtype::kF32) return 0x1p-23;
  return dtype == Dtype::kF16 ? 0x1p-10 : 0x1p-7;
}

// Everything that a case's checks need: what each rank has and the rank's own blocks.
class Runner {
 public:
  Runner(Rank& rank, const Case& test)
      : rank_(rank),
        test_(test),
        me_(rank.number()),
        size_(rank.size()),
        element_(BytesPerElement(test.dtype)) {}

  Status Call();
  void Check();

 private:
  bool AnyBits() const { return !IsReduction(test_) && rank_.backend().copy_error == 0; }
  // Elements that rank `from` sends rank `to` in an all-to-all.
  uint64_t Sends(uint32_t from, uint32_t to) const {
    if (!test_.blocks) return test_.count;
    const uint64_t random = Random(test_.seed, 77, from * size_ + to);
    return random % 3 == 0 ? 0 : random % (test_.count + 1);
  }
  Bytes Input(uint32_t rank, uint64_t count) const {
    return Contents(test_, rank, count, AnyBits());
  }
  // What `from` sends `to`.
  Bytes Piece(uint32_t from, uint32_t to) const {
    return Contents(test_, 1000 + from * size_ + to, Sends(from, to), AnyBits());
  }
  void* NewOutput(uint64_t count) {
    out_bytes_ = count * element_;
    return rank_.Put(Bytes(out_bytes_ + kGuardBytes, kGuard));
  }
  Status CallReduction();
  Status CallAllToAll();
  void MakeExpected();
  void Compare(const Bytes& got, const Bytes& expected) const;

  Rank& rank_;
  const Case& test_;
  const uint32_t me_, size_;
  const size_t element_;

  Bytes input_;
  void* in_ = nullptr;
  void* out_ = nullptr;
  size_t out_bytes_ = 0;  // before the guard
  std::vector<Block> send_, receive_;
  Bytes expected_;
};

Status Runner::CallReduction() {
  Communicator& communicator = rank_.communicator();
  const bool scatter = test_.op == Op::kReduceScatter;
  const uint64_t all = scatter ? size_ * test_.count : test_.count;
  input_ = Input(me_, all);
  in_ = rank_.Put(input_);
  if (test_.in_place) {
    const size_t at = scatter ? me_ * test_.count * element_ : 0;
    out_ = static_cast<std::byte*>(in_) + at;
    out_bytes_ = test_.count * element_;
  } else {
    out_ = NewOutput(test_.count);
  }
  if (scatter) {
    return communicator.ReduceScatter(in_, out_, test_.count, test_.dtype, test_.reduction,
                                      rank_.queue());
  }
  return communicator.AllReduce(in_, out_, test_.count, test_.dtype, test_.reduction,
                                rank_.queue());
}

// Blocks from the last rank to the first, with a gap of three elements before each.
std::vector<Block> Layout(const std::vector<uint64_t>& counts, uint64_t* total) {
  std::vector<Block> blocks(counts.size());
  for (size_t rank = counts.size(); rank-- > 0;) {
    *total += 3;
    blocks[rank] = {*total, counts[rank]};
    *total += counts[rank];
  }
  return blocks;
}

Status Runner::CallAllToAll() {
  Communicator& communicator = rank_.communicator();
  std::vector<uint64_t> sends, receives;
  for (uint32_t other = 0; other < size_; ++other) {
    sends.push_back(Sends(me_, other));
    receives.push_back(Sends(other, me_));
  }
  if (!test_.blocks) {
    for (uint32_t other = 0; other < size_; ++other) {
      const Bytes piece = Piece(me_, other);
      input_.insert(input_.end(), piece.begin(), piece.end());
      receive_.push_back({other * test_.count, test_.count});
    }
    in_ = rank_.Put(input_);
    out_ = NewOutput(size_ * test_.count);
    return communicator.AllToAll(in_, out_, test_.count, test_.dtype, rank_.queue());
  }
  uint64_t in_count = 0, out_count = 0;
  send_ = Layout(sends, &in_count);
  receive_ = Layout(receives, &out_count);
  input_.resize(in_count * element_, kGuard);
  for (uint32_t other = 0; other < size_; ++other) {
    std::ranges::copy(Piece(me_, other), input_.begin() + send_[other].offset * element_);
  }
  in_ = rank_.Put(input_);
  out_ = NewOutput(out_count);
  return communicator.AllToAllV(in_, send_, out_, receive_, test_.dtype, rank_.queue());
}

Status Runner::Call() {
  Communicator& communicator = rank_.communicator();
  switch (test_.op) {
    case Op::kAllReduce:
    case Op::kReduceScatter:
      return CallReduction();
    case Op::kAllToAll:
      return CallAllToAll();
    case Op::kAllGather:
      input_ = Input(me_, test_.count);
      out_ = NewOutput(size_ * test_.count);
      in_ = rank_.Put(input_);
      if (test_.in_place) {
        Bytes all(size_ * input_.size() + kGuardBytes, kGuard);
        std::ranges::copy(input_, all.begin() + me_ * input_.size());
        out_ = rank_.Put(all);
        in_ = static_cast<std::byte*>(out_) + me_ * input_.size();
      }
      return communicator.AllGather(in_, out_, test_.count, test_.dtype, rank_.queue());
    case Op::kBroadcast: {
      Bytes all(test_.count * element_ + kGuardBytes, kGuard);
      if (me_ == test_.root) std::ranges::copy(Input(me_, test_.count), all.begin());
      out_ = rank_.Put(all);
      out_bytes_ = test_.count * element_;
      return communicator.Broadcast(out_, test_.count, test_.dtype, test_.root, rank_.queue());
    }
    case Op::kBarrier:
      break;
  }
  return communicator.Barrier(rank_.queue());
}

void Runner::MakeExpected() {
  if (IsReduction(test_)) {
    const bool scatter = test_.op == Op::kReduceScatter;
    std::vector<Bytes> inputs;
    for (uint32_t rank = 0; rank < size_; ++rank) {
      Bytes all = Input(rank, scatter ? size_ * test_.count : test_.count);
      const auto begin = all.begin() + (scatter ? me_ * test_.count * element_ : 0);
      inputs.emplace_back(begin, begin + test_.count * element_);
    }
    expected_ = Reference(inputs, test_);
  } else if (test_.op == Op::kAllGather) {
    for (uint32_t rank = 0; rank < size_; ++rank) {
      const Bytes input = Input(rank, test_.count);
      expected_.insert(expected_.end(), input.begin(), input.end());
    }
  } else if (test_.op == Op::kBroadcast) {
    expected_ = Input(test_.root, test_.count);
  } else if (test_.op == Op::kAllToAll) {
    expected_.resize(out_bytes_, kGuard);
    for (uint32_t other = 0; other < size_; ++other) {
      std::ranges::copy(Piece(other, me_), expected_.begin() + receive_[other].offset * element_);
    }
  }
}

void Runner::Compare(const Bytes& got, const Bytes& expected) const {
  const bool sums = IsReduction(test_) && test_.reduction == Reduction::kSum;
  const Backend& backend = rank_.backend();
  double error = sums ? backend.sum_error * size_ : backend.copy_error;
  if (sums && !backend.rank_order) error += size_ * Epsilon(test_.dtype);
  if (test_.dtype == Dtype::kBytes || error == 0 || (sums && backend.rank_order)) {
    const auto [mine, theirs] = std::ranges::mismatch(got, expected);
    EXPECT_TRUE(mine == got.end())
        << "the first of the bytes that differ is " << mine - got.begin() << " of " << got.size();
    return;
  }
  // Numbers stay below 2^7.
  const double bound = error * 0x1p7;
  for (size_t at = 0; at + element_ <= got.size(); at += element_) {
    const float value = Load(got.data() + at, test_.dtype);
    const float right = Load(expected.data() + at, test_.dtype);
    ASSERT_LE(std::abs(value - right), bound)
        << "element " << at / element_ << ": " << value << " instead of " << right;
  }
}

void Runner::Check() {
  if (test_.op == Op::kBarrier) return;
  MakeExpected();
  Compare(rank_.Get(out_, out_bytes_), expected_);
  if (!test_.in_place) {
    if (in_ != nullptr) {
      EXPECT_EQ(rank_.Get(in_, input_.size()), input_) << "the input changed";
    }
    const void* const behind = static_cast<const std::byte*>(out_) + out_bytes_;
    EXPECT_EQ(rank_.Get(behind, kGuardBytes), Bytes(kGuardBytes, kGuard))
        << "written behind the output";
  }
}

}  // namespace

std::string ToString(const Case& test) {
  return fmt::format("{}{} of {} {}{}{}, seed {}", ToString(test.op),
                     test.reduction == Reduction::kMax ? "(max)" : "", test.count,
                     ToString(test.dtype), test.in_place ? " in place" : "",
                     test.op == Op::kBroadcast ? fmt::format(" from {}", test.root)
                     : test.blocks             ? " in blocks"
                                               : "",
                     test.seed);
}

void RunCase(Rank& rank, const Case& test) {
  SCOPED_TRACE(fmt::format("rank {} of {}: {}", rank.number(), rank.size(), ToString(test)));
  Runner runner(rank, test);
  const Status done = rank.Await(runner.Call());
  if (!rank.backend().Has(test.op, test.dtype, test.reduction)) {
    EXPECT_TRUE(absl::IsUnimplemented(done)) << done;
    return;
  }
  ASSERT_TRUE(done.ok()) << done;
  runner.Check();
}

}  // namespace longhaul::collective
