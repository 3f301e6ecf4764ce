#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "transport/collective/core/call.h"
#include "transport/collective/engine/engine.h"
#include "transport/collective/engine/over.h"
#include "transport/collective/engine/pipeline.h"
#include "transport/collective/taco/coder.h"
#include "transport/collective/taco/factory.h"

namespace longhaul::collective::taco {
namespace {

constexpr uint64_t kPlaces = 2;  // of pieces at a time (pipeline.h)
constexpr uint64_t kMaxElements = (uint64_t{1} << 32) - 1;

// Which elements of a buffer belong to whom.
struct Parts {
  uint64_t stride = 0;  // from one part to the next
  uint64_t count = 0;   // of the whole buffer
  uint64_t first(uint32_t rank) const { return std::min(rank * stride, count); }
  uint64_t size(uint32_t rank) const { return first(rank + 1) - first(rank); }
};

// A piece of every part: elements from `begin` on.
struct Piece {
  uint64_t begin = 0;
  std::vector<uint64_t> counts;  // by rank
};

Piece PieceAt(const Parts& parts, uint32_t ranks, uint64_t elements, uint64_t number) {
  Piece piece;
  piece.begin = number * elements;
  for (uint32_t r = 0; r < ranks; ++r) {
    const uint64_t size = parts.size(r);
    const uint64_t begin = std::min(piece.begin, size);
    piece.counts.push_back(std::min(begin + elements, size) - begin);
  }
  return piece;
}

// With the options, unless they are the usual ones.
std::string NameOf(const Options& options) {
  const codec::taco::Params params{options.format, options.block};
  return params == codec::taco::Params() ? "taco" : codec::taco::CodecString(params);
}

class TacoCommunicator final : public CommunicatorOver {
 public:
  TacoCommunicator(std::shared_ptr<Communicator> below, const Options& options,
                   std::unique_ptr<Engine> engine, std::unique_ptr<Coder> coder, Pipeline pipeline)
      : CommunicatorOver(NameOf(options), std::move(below), options.call_limit),
        options_(options),
        engine_(std::move(engine)),
        coder_(std::move(coder)),
        pipeline_(std::move(pipeline)) {}

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    if (!Codes(dtype) || reduction != Reduction::kSum || count == 0) {
      return Pass([&] { return below().AllReduce(in, out, count, dtype, reduction, queue); });
    }
    LH_RETURN_IF_ERROR(
        internal::CheckArguments({Op::kAllReduce, dtype, reduction, 0, count}, size(), in, out));
    if (size() == 2) return ReduceWhole(in, out, count, dtype, queue);
    const uint64_t step = uint64_t{size()} * options_.block;
    const Parts parts{(count + step - 1) / step * options_.block, count};
    return Reduce(in, At(out, parts.first(rank()), dtype), out, parts, dtype, queue);
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    if (!Codes(dtype) || reduction != Reduction::kSum || count == 0) {
      return Pass([&] { return below().ReduceScatter(in, out, count, dtype, reduction, queue); });
    }
    LH_RETURN_IF_ERROR(internal::CheckArguments({Op::kReduceScatter, dtype, reduction, 0, count},
                                                size(), in, out));
    return Reduce(in, static_cast<std::byte*>(out), nullptr, {count, count * size()}, dtype, queue);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    if (!Codes(dtype) || count == 0)
      return Pass([&] { return below().AllGather(in, out, count, dtype, queue); });
    LH_RETURN_IF_ERROR(internal::CheckArguments(
        {.op = Op::kAllGather, .dtype = dtype, .count = count}, size(), in, out));
    LH_RETURN_IF_ERROR(CheckCount(count));
    const uint64_t piece_elements = PieceOf(count);
    const uint64_t pieces = (count + piece_elements - 1) / piece_elements;
    const uint64_t stride = coder_->Bytes(piece_elements);
    const uint64_t area = size() * stride;
    const auto reserve = [&]() -> Status {
      LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * stride, &sums_));
      return Reserve(*engine_, kPlaces * area, &gathered_);
    };
    LH_RETURN_IF_ERROR(Limited(reserve));
    const auto begin_of = [&](uint64_t number) { return number * piece_elements; };
    const auto count_of = [&](uint64_t number) {
      return std::min(begin_of(number) + piece_elements, count) - begin_of(number);
    };
    const auto payload_of = [&](uint64_t number) {
      return sums_.data() + number % kPlaces * stride;
    };
    const auto encode = [&](uint64_t number, Queue on) {
      return coder_->Encode(At(in, begin_of(number), dtype), count_of(number), dtype,
                            payload_of(number), on);
    };
    const auto gather = [&](uint64_t number, Queue on) {
      return Gather(payload_of(number), coder_->Bytes(count_of(number)),
                    gathered_.data() + number % kPlaces * area, on);
    };
    const auto decode = [&](uint64_t number, Queue on) -> Status {
      const std::byte* const place = gathered_.data() + number % kPlaces * area;
      for (uint32_t r = 0; r < size(); ++r) {
        LH_RETURN_IF_ERROR(coder_->Decode(place + r * coder_->Bytes(count_of(number)),
                                          count_of(number), dtype,
                                          At(out, r * count + begin_of(number), dtype), on));
      }
      return absl::OkStatus();
    };
    const std::vector<Step> steps = {{.lag = 0, .wire = false, .run = encode},
                                     {.lag = 0, .wire = true, .run = gather},
                                     {.lag = 1, .wire = false, .run = decode}};
    LH_RETURN_IF_ERROR(Limited([&] { return pipeline_.Run(pieces, steps, queue); }));
    ++counted().calls;
    counted().tensor_bytes += (size() - 1) * count * BytesPerElement(dtype);
    return absl::OkStatus();
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    return Pass([&] { return below().AllToAllV(in, send, out, receive, dtype, queue); });
  }
  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    LH_RETURN_IF_ERROR(below().Prepare(op, count, dtype));
    if (!Codes(dtype) || op == Op::kAllToAll || op == Op::kBroadcast || op == Op::kBarrier) {
      return absl::OkStatus();
    }
    if (op == Op::kAllReduce && size() == 2) {
      const uint64_t bytes = size() * coder_->Bytes(count);
      LH_RETURN_IF_ERROR(below().Prepare(Op::kAllGather, bytes, Dtype::kBytes));
      return Reserve(*engine_, kPlaces * bytes, &gathered_);
    }
    // Parts are whole blocks of one length, so no more than a block a rank is added.
    const uint64_t bytes = coder_->Bytes(count + uint64_t{size()} * options_.block) +
                           size() * 2 * uint64_t{options_.block};
    LH_RETURN_IF_ERROR(below().Prepare(Op::kAllToAll, bytes, Dtype::kBytes));
    LH_RETURN_IF_ERROR(below().Prepare(Op::kAllGather, bytes, Dtype::kBytes));
    for (OwnedMemory* memory : {&sent_, &received_, &sums_, &gathered_}) {
      LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * bytes, memory));
    }
    return absl::OkStatus();
  }

  Status Wait(Queue queue, Deadline deadline) override { return below().Wait(queue, deadline); }

 private:
  static std::byte* At(void* data, uint64_t element, Dtype dtype) {
    return static_cast<std::byte*>(data) + element * BytesPerElement(dtype);
  }
  static const std::byte* At(const void* data, uint64_t element, Dtype dtype) {
    return static_cast<const std::byte*>(data) + element * BytesPerElement(dtype);
  }
  bool Codes(Dtype dtype) const { return dtype != Dtype::kBytes && size() > 1; }

  // `own_out`: this rank's part of the sums. `all_out`: the whole buffer, where all ranks are to
  // have all parts; null: not.
  Status Reduce(const void* in, std::byte* own_out, void* all_out, const Parts& parts, Dtype dtype,
                Queue queue) {
    LH_RETURN_IF_ERROR(CheckCount(parts.stride));
    const uint64_t piece_elements = PieceOf(parts.stride);
    const uint64_t pieces = (parts.stride + piece_elements - 1) / piece_elements;
    const uint64_t stride = coder_->Bytes(piece_elements);
    const uint64_t area = size() * stride;
    const auto reserve = [&]() -> Status {
      LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * area, &sent_));
      LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * area, &received_));
      LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * stride, &sums_));
      return all_out == nullptr ? absl::OkStatus() : Reserve(*engine_, kPlaces * area, &gathered_);
    };
    LH_RETURN_IF_ERROR(Limited(reserve));

    const auto piece_of = [&](uint64_t number) {
      return PieceAt(parts, size(), piece_elements, number);
    };
    const auto bytes_of = [&](const Piece& piece) {
      std::vector<uint64_t> bytes;
      for (const uint64_t count : piece.counts) bytes.push_back(coder_->Bytes(count));
      return bytes;
    };
    const auto encode = [&](uint64_t number, Queue on) -> Status {
      const Piece piece = piece_of(number);
      std::byte* const place = sent_.data() + number % kPlaces * area;
      for (uint32_t r = 0; r < size(); ++r) {
        if (r == rank() || piece.counts[r] == 0) continue;
        LH_RETURN_IF_ERROR(coder_->Encode(At(in, parts.first(r) + piece.begin, dtype),
                                          piece.counts[r], dtype, place + r * stride, on));
      }
      return absl::OkStatus();
    };
    const auto scatter = [&](uint64_t number, Queue on) {
      const Piece piece = piece_of(number);
      const std::vector<uint64_t> own(size(), coder_->Bytes(piece.counts[rank()]));
      return Exchange(sent_.data() + number % kPlaces * area, stride, bytes_of(piece),
                      received_.data() + number % kPlaces * area, stride, own, on);
    };
    const auto reduce = [&](uint64_t number, Queue on) {
      const Piece piece = piece_of(number);
      if (piece.counts[rank()] == 0) return absl::OkStatus();
      std::vector<const void*> all;
      for (uint32_t r = 0; r < size(); ++r) {
        const std::byte* const payload = received_.data() + number % kPlaces * area + r * stride;
        all.push_back(r == rank() ? At(in, parts.first(r) + piece.begin, dtype) : payload);
      }
      return coder_->Reduce(all, rank(), piece.counts[rank()], dtype,
                            all_out == nullptr ? nullptr : sums_.data() + number % kPlaces * stride,
                            own_out + piece.begin * BytesPerElement(dtype), on);
    };
    // If all parts have one size, AllGather gathers them.
    const bool equal = parts.size(0) == parts.size(size() - 1);
    const auto stride_of = [&](const Piece& piece) {
      return equal ? coder_->Bytes(piece.counts[0]) : stride;
    };
    const auto gather = [&](uint64_t number, Queue on) {
      const Piece piece = piece_of(number);
      if (equal) {
        return Gather(sums_.data() + number % kPlaces * stride, stride_of(piece),
                      gathered_.data() + number % kPlaces * area, on);
      }
      const std::vector<uint64_t> own(size(), coder_->Bytes(piece.counts[rank()]));
      return Exchange(sums_.data() + number % kPlaces * stride, 0, own,
                      gathered_.data() + number % kPlaces * area, stride, bytes_of(piece), on);
    };
    const auto decode = [&](uint64_t number, Queue on) -> Status {
      const Piece piece = piece_of(number);
      const std::byte* const place = gathered_.data() + number % kPlaces * area;
      for (uint32_t r = 0; r < size(); ++r) {
        if (r == rank() || piece.counts[r] == 0) continue;
        LH_RETURN_IF_ERROR(coder_->Decode(place + r * stride_of(piece), piece.counts[r], dtype,
                                          At(all_out, parts.first(r) + piece.begin, dtype), on));
      }
      return absl::OkStatus();
    };
    std::vector<Step> steps = {{.lag = 0, .wire = false, .run = encode},
                               {.lag = 0, .wire = true, .run = scatter},
                               {.lag = 1, .wire = false, .run = reduce}};
    if (all_out != nullptr) {
      steps.push_back({.lag = 1, .wire = true, .run = gather});
      steps.push_back({.lag = 2, .wire = false, .run = decode});
    }
    LH_RETURN_IF_ERROR(Limited([&] { return pipeline_.Run(pieces, steps, queue); }));
    ++counted().calls;
    const uint64_t others = parts.count - parts.size(rank());
    const uint64_t gathered = all_out == nullptr ? 0 : (size() - 1) * parts.size(rank());
    counted().tensor_bytes += (others + gathered) * BytesPerElement(dtype);
    return absl::OkStatus();
  }
  // Two ranks only: each sends all of its numbers, and computes the whole sum.
  Status ReduceWhole(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) {
    LH_RETURN_IF_ERROR(CheckCount(count));
    const uint64_t piece_elements = PieceOf(count);
    const uint64_t pieces = (count + piece_elements - 1) / piece_elements;
    const uint64_t area = size() * coder_->Bytes(piece_elements);
    LH_RETURN_IF_ERROR(Limited([&] { return Reserve(*engine_, kPlaces * area, &gathered_); }));
    const auto count_of = [&](uint64_t number) {
      return std::min((number + 1) * piece_elements, count) - number * piece_elements;
    };
    // Returns the place of rank r's payload in this piece. This rank's own is already where
    // AllGather needs it.
    const auto payload_of = [&](uint64_t number, uint32_t r) {
      return gathered_.data() + number % kPlaces * area + r * coder_->Bytes(count_of(number));
    };
    const auto encode = [&](uint64_t number, Queue on) {
      return coder_->Encode(At(in, number * piece_elements, dtype), count_of(number), dtype,
                            payload_of(number, rank()), on);
    };
    const auto gather = [&](uint64_t number, Queue on) {
      return Gather(payload_of(number, rank()), coder_->Bytes(count_of(number)),
                    payload_of(number, 0), on);
    };
    const auto reduce = [&](uint64_t number, Queue on) {
      const std::array<const void*, 2> all = {payload_of(number, 0), payload_of(number, 1)};
      return coder_->Reduce(all, Coder::kNoneIsOwn, count_of(number), dtype, nullptr,
                            At(out, number * piece_elements, dtype), on);
    };
    const std::vector<Step> steps = {{.lag = 0, .wire = false, .run = encode},
                                     {.lag = 0, .wire = true, .run = gather},
                                     {.lag = 1, .wire = false, .run = reduce}};
    LH_RETURN_IF_ERROR(Limited([&] { return pipeline_.Run(pieces, steps, queue); }));
    ++counted().calls;
    counted().tensor_bytes += count * BytesPerElement(dtype);
    return absl::OkStatus();
  }
  // Every rank's payload of `bytes` in `from` at r x stride goes to rank r, its own comes to `to`.
  Status Exchange(const std::byte* from, uint64_t send_stride, std::span<const uint64_t> send_bytes,
                  std::byte* to, uint64_t stride, std::span<const uint64_t> receive_bytes,
                  Queue queue) {
    std::vector<Block> send(size()), receive(size());
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      send[r] = {r * send_stride, send_bytes[r]};
      receive[r] = {r * stride, receive_bytes[r]};
      counted().sent_bytes += send_bytes[r];
    }
    return below().AllToAllV(from, send, to, receive, Dtype::kBytes, queue);
  }

  // Every rank's payload of `bytes` to all, behind each other in `to`.
  Status Gather(const std::byte* payload, uint64_t bytes, std::byte* to, Queue queue) {
    counted().sent_bytes += (size() - 1) * bytes;
    return below().AllGather(payload, to, bytes, Dtype::kBytes, queue);
  }

  // Whole blocks, so that pieces have the blocks that the parts have.
  uint64_t PieceOf(uint64_t count) const {
    if (options_.piece_elements == 0 || engine_->device() == nullptr) {
      return std::max<uint64_t>(count, 1);
    }
    const uint64_t blocks = (options_.piece_elements + options_.block - 1) / options_.block;
    return std::clamp<uint64_t>(count, 1, blocks * options_.block);
  }
  Status CheckCount(uint64_t count) const {
    if (count <= kMaxElements) return absl::OkStatus();
    return InvalidArgument("expected at most {} elements for a rank, got {}", kMaxElements, count);
  }

  const Options options_;
  const std::unique_ptr<Engine> engine_;
  const std::unique_ptr<Coder> coder_;
  Pipeline pipeline_;
  // Payloads: for the others, from them, of this rank's sums, of the others' sums.
  OwnedMemory sent_, received_, sums_, gathered_;
};

}  // namespace

StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Communicator> below,
                                               const cuda::Device* device, const Options& options) {
  const codec::taco::Params params{options.format, options.block};
  if (!codec::taco::Possible(params)) {
    return InvalidArgument("expected blocks of 32, 64, 128, 256 or 512 elements, got {}",
                           options.block);
  }
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, EngineFor(*below, device));
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Coder> coder, Coder::Create(engine.get(), params));
  LH_ASSIGN_OR_RETURN(Pipeline pipeline, Pipeline::Create(device));
  return std::make_unique<TacoCommunicator>(std::move(below), options, std::move(engine),
                                            std::move(coder), std::move(pipeline));
}

}  // namespace longhaul::collective::taco
