#include "transport/collective/switcher/probe.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "base/half.h"
#include "transport/collective/engine/engine.h"

namespace longhaul::collective::switcher {
namespace {

using Json = nlohmann::json;
constexpr uint64_t kSizes[] = {16 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20};
// Fewer give no line.
constexpr size_t kLeastSizes = 2;
constexpr size_t kRounds = 5;
constexpr uint64_t kManyCallsBytes = 2 << 20;
constexpr size_t kManyCalls = 4;
constexpr size_t kPatternBytes = 512 << 10;

size_t CallsOf(uint64_t bytes) {
  return bytes <= kManyCallsBytes ? kManyCalls : 1;
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Normal numbers: what a codec makes of tensors.
void FillPattern(Dtype dtype, uint32_t rank, std::span<std::byte> to) {
  std::mt19937 random(rank + 1);
  std::normal_distribution<float> law;
  const size_t element = BytesPerElement(dtype);
  for (size_t at = 0; at + element <= to.size(); at += element) {
    const float value = law(random);
    const uint16_t half = dtype == Dtype::kF16 ? F32ToF16(value) : F32ToBf16(value);
    std::memcpy(to.data() + at, element == 4 ? static_cast<const void*>(&value) : &half, element);
  }
}

// The tensors of the probe's calls.
class Tensors {
 public:
  static StatusOr<Tensors> Create(const cuda::Device* device) {
    Tensors made;
    made.engine_ = Engine::ForHost();
    if (device == nullptr) return made;
    LH_ASSIGN_OR_RETURN(made.engine_, Engine::ForDevice(*device));
    LH_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(*device));
    made.stream_.emplace(std::move(stream));
    LH_ASSIGN_OR_RETURN(cuda::PinnedBuffer pattern,
                        cuda::PinnedBuffer::Create(*device, kPatternBytes));
    made.pinned_.emplace(std::move(pattern));
    return made;
  }

  Queue queue() const { return {stream_.has_value() ? stream_->handle() : nullptr}; }
  const void* in() const { return in_.data(); }
  void* out() const { return out_.data(); }

  // Queued: both have room for `bytes`, and `in` has numbers.
  Status Grow(uint64_t bytes, Dtype dtype, uint32_t rank) {
    if (in_.size() < bytes) {
      in_ = {};
      out_ = {};
      LH_ASSIGN_OR_RETURN(in_, engine_->Allocate(bytes));
      LH_ASSIGN_OR_RETURN(out_, engine_->Allocate(bytes));
      written_.reset();
    }
    if (written_ == dtype) return absl::OkStatus();
    written_ = dtype;
    if (!pinned_.has_value()) {
      const size_t pattern = std::min(kPatternBytes, in_.size());
      FillPattern(dtype, rank, {in_.data(), pattern});
      for (size_t at = pattern; at < in_.size(); at += pattern) {
        std::memcpy(in_.data() + at, in_.data(), std::min(pattern, in_.size() - at));
      }
      return absl::OkStatus();
    }
    FillPattern(dtype, rank, pinned_->span());
    for (size_t at = 0; at < in_.size(); at += kPatternBytes) {
      LH_RETURN_IF_ERROR(engine_->Copy(in_.data() + at, pinned_->span().data(),
                                       std::min(kPatternBytes, in_.size() - at), queue()));
    }
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::optional<cuda::Stream> stream_;
  std::optional<cuda::PinnedBuffer> pinned_;
  OwnedMemory in_, out_;
  std::optional<Dtype> written_;
};

// One size of one operation.
struct Call {
  Op op;
  Dtype dtype;
  uint64_t count;  // as the call takes it
  uint64_t bytes;  // of the largest tensor

  Call(Op o, Dtype d, uint64_t size, uint32_t ranks) : op(o), dtype(d) {
    const uint64_t elements = size / BytesPerElement(d);
    count = op == Op::kAllReduce ? elements : std::max<uint64_t>(elements / ranks, 1);
    bytes = count * (op == Op::kAllReduce ? 1 : ranks) * BytesPerElement(d);
  }
  Status Make(Communicator& communicator, const Tensors& tensors) const {
    const void* const in = tensors.in();
    switch (op) {
      case Op::kAllReduce:
        return communicator.AllReduce(in, tensors.out(), count, dtype, Reduction::kSum,
                                      tensors.queue());
      case Op::kReduceScatter:
        return communicator.ReduceScatter(in, tensors.out(), count, dtype, Reduction::kSum,
                                          tensors.queue());
      case Op::kAllGather:
        return communicator.AllGather(in, tensors.out(), count, dtype, tensors.queue());
      default:
        return communicator.AllToAll(in, tensors.out(), count, dtype, tensors.queue());
    }
  }
};

class Prober {
 public:
  Prober(Member* member, std::span<const std::shared_ptr<Communicator>> communicators,
         Tensors tensors, Deadline deadline)
      : member_(member),
        communicators_(communicators),
        tensors_(std::move(tensors)),
        deadline_(deadline) {}

  // What is spent of the probe's time, on the slowest rank.
  double spent() const { return spent_; }

  StatusOr<Probe> Run(Op op, Dtype dtype, double limit) {
    Probe probe{.op = op, .dtype = dtype};
    uint64_t before = 0;
    for (size_t k = 0; k < std::size(kSizes); ++k) {
      const Call call(op, dtype, kSizes[k], communicators_[0]->size());
      if (k >= kLeastSizes && spent_ + Cost(probe.points.back(), call.bytes) > limit) break;
      if (call.bytes <= before) continue;  // more ranks than the least size has elements
      before = call.bytes;
      LH_RETURN_IF_ERROR(Measure(call, &probe));
    }
    return probe;
  }

 private:
  // What `bytes` will take at most, by what fewer took.
  double Cost(const Point& point, uint64_t bytes) const {
    double seconds = 0;
    for (const double one : point.seconds) seconds += one;
    const double growth = static_cast<double>(bytes) / static_cast<double>(point.bytes);
    return seconds * growth * static_cast<double>(1 + kRounds * CallsOf(bytes));
  }

  // Seconds of a call, 0 where it cannot be made.
  StatusOr<double> Batch(Communicator& communicator, const Call& call, size_t calls) {
    LH_RETURN_IF_ERROR(communicators_[0]->Barrier(tensors_.queue()));
    LH_RETURN_IF_ERROR(communicators_[0]->Wait(tensors_.queue(), deadline_));
    const MonoTime began = Now();
    Status made;
    for (size_t k = 0; k < calls && made.ok(); ++k) made = call.Make(communicator, tensors_);
    if (made.ok()) made = communicator.Wait(tensors_.queue(), deadline_);
    if (absl::IsOutOfRange(made) || absl::IsUnimplemented(made)) return 0.0;
    LH_RETURN_IF_ERROR(made);
    return absl::ToDoubleSeconds(Now() - began) / static_cast<double>(calls);
  }

  Status Measure(const Call& call, Probe* probe) {
    const MonoTime began = Now();
    const size_t all = communicators_.size();
    LH_RETURN_IF_ERROR(tensors_.Grow(call.bytes, call.dtype, communicators_[0]->rank()));
    std::vector<std::vector<double>> rounds(all);
    std::vector<Stats> stats(all);
    std::vector<bool> able(all, true);
    for (size_t k = 0; k < all; ++k) {
      LH_RETURN_IF_ERROR(communicators_[k]->Prepare(
          call.op, call.bytes / BytesPerElement(call.dtype), call.dtype));
      stats[k] = communicators_[k]->stats();
      LH_ASSIGN_OR_RETURN(const double first, Batch(*communicators_[k], call, 1));
      able[k] = first > 0;
    }
    LH_RETURN_IF_ERROR(AgreeOnAble(&able));
    for (size_t round = 0; round < kRounds; ++round) {
      for (size_t k = 0; k < all; ++k) {
        if (!able[k]) continue;
        LH_ASSIGN_OR_RETURN(const double seconds,
                            Batch(*communicators_[k], call, CallsOf(call.bytes)));
        rounds[k].push_back(seconds);
      }
    }
    Json word{{"took", absl::ToDoubleSeconds(Now() - began)}};
    for (size_t k = 0; k < all; ++k) {
      const Stats now = communicators_[k]->stats();
      word["seconds"].push_back(rounds[k].empty() ? 0.0 : MedianOf(rounds[k]));
      word["tensor"].push_back(now.tensor_bytes - stats[k].tensor_bytes);
      word["sent"].push_back(now.all_sent_bytes() - stats[k].all_sent_bytes());
    }
    return Agree(word, call, probe);
  }

  StatusOr<std::vector<Json>> Tell(const Json& word) {
    LH_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                        member_->Tell(word.dump(), deadline_));
    std::vector<Json> all;
    for (size_t rank = 0; rank < words.size(); ++rank) {
      all.push_back(Json::parse(words[rank], nullptr, /*allow_exceptions=*/false));
      if (all.back().type() != word.type() || all.back().size() != word.size()) {
        return InvalidArgument(
            "rank {} makes other calls: all ranks must make a switcher of the same "
            "communicators",
            rank);
      }
    }
    return all;
  }

  // An exchange may be refused by some ranks alone.
  Status AgreeOnAble(std::vector<bool>* able) {
    LH_ASSIGN_OR_RETURN(const std::vector<Json> all, Tell(Json(*able)));
    for (const Json& word : all) {
      for (size_t k = 0; k < able->size(); ++k) (*able)[k] = (*able)[k] && word[k].get<bool>();
    }
    return absl::OkStatus();
  }

  Status Agree(const Json& own, const Call& call, Probe* probe) {
    LH_ASSIGN_OR_RETURN(const std::vector<Json> all, Tell(own));
    const size_t communicators = communicators_.size();
    Point point{.bytes = call.bytes, .seconds = std::vector<double>(communicators)};
    probe->ratios.assign(communicators, 1);
    double took = 0;
    for (size_t k = 0; k < communicators; ++k) {
      uint64_t tensor = 0, sent = 0;
      for (const Json& word : all) {
        point.seconds[k] = std::max(point.seconds[k], word["seconds"][k].get<double>());
        tensor += word["tensor"][k].get<uint64_t>();
        sent += word["sent"][k].get<uint64_t>();
      }
      if (tensor > 0 && sent > 0) {
        probe->ratios[k] = static_cast<double>(tensor) / static_cast<double>(sent);
      }
    }
    for (const Json& word : all) took = std::max(took, word["took"].get<double>());
    spent_ += took;
    // Without a time of the native communicator there is nothing to hold others against.
    if (!(point.seconds[0] > 0)) {
      return FailedPrecondition("{} could not make an {} for the probe",
                                communicators_[0]->Describe(), ToString(call.op));
    }
    probe->points.push_back(std::move(point));
    return absl::OkStatus();
  }

  Member* const member_;
  const std::span<const std::shared_ptr<Communicator>> communicators_;
  Tensors tensors_;
  const Deadline deadline_;
  double spent_ = 0;
};

}  // namespace

StatusOr<std::vector<Probe>> RunProbe(Member* member,
                                      std::span<const std::shared_ptr<Communicator>> communicators,
                                      const cuda::Device* device, const Options& options,
                                      Deadline deadline) {
  LH_ASSIGN_OR_RETURN(Tensors tensors, Tensors::Create(device));
  Prober prober(member, communicators, std::move(tensors), deadline);
  const double limit = absl::ToDoubleSeconds(options.probe_limit);
  const double parts = static_cast<double>(kOperations.size() * options.dtypes.size());
  std::vector<Probe> probes;
  for (const Dtype dtype : options.dtypes) {
    for (const Op op : kOperations) {
      // What one operation leaves of its share is the next one's.
      const double share = limit * static_cast<double>(probes.size() + 1) / parts;
      LH_ASSIGN_OR_RETURN(Probe probe, prober.Run(op, dtype, share));
      probes.push_back(std::move(probe));
    }
  }
  return probes;
}

}  // namespace longhaul::collective::switcher
