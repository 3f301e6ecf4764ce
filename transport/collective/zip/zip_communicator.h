// The class that factory.h makes, shared by its source files.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/collective/core/call.h"
#include "transport/collective/engine/engine.h"
#include "transport/collective/engine/over.h"
#include "transport/collective/engine/pipeline.h"
#include "transport/collective/zip/coder.h"
#include "transport/collective/zip/factory.h"
#include "transport/collective/zip/layout.h"

namespace longhaul::collective::zip {

inline constexpr uint64_t kElementBytes = 2;
inline constexpr uint64_t kPlaces = 2;  // pieces in flight (pipeline.h)
inline constexpr uint64_t kMaxElements = (uint64_t{1} << 32) - 1;

class ZipCommunicator final : public CommunicatorOver {
 public:
  ZipCommunicator(std::shared_ptr<Communicator> below, const Options& options,
                  std::unique_ptr<Engine> engine, std::unique_ptr<Coder> coder, Pipeline pipeline)
      : CommunicatorOver("zip", std::move(below), options.call_limit),
        options_(options),
        engine_(std::move(engine)),
        coder_(std::move(coder)),
        pipeline_(std::move(pipeline)),
        blobs_(this->below().blobs()) {}

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    if (!Zips(dtype) || reduction != Reduction::kSum) {
      return Pass([&] { return below().AllReduce(in, out, count, dtype, reduction, queue); });
    }
    LH_RETURN_IF_ERROR(
        internal::CheckArguments({Op::kAllReduce, dtype, reduction, 0, count}, size(), in, out));
    const uint64_t part = PartOf(count);
    const auto first = [&](uint32_t r) { return std::min(r * part, count); };
    const auto size_of = [&](uint32_t r) { return std::min((r + 1) * part, count) - first(r); };
    op_ = Op::kAllReduce;
    LH_RETURN_IF_ERROR(ReduceParts(in, At(out, first(rank())), first, size_of, queue));
    return GatherParts(At(out, first(rank())), out, first, size_of, queue);
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    if (!Zips(dtype) || reduction != Reduction::kSum) {
      return Pass([&] { return below().ReduceScatter(in, out, count, dtype, reduction, queue); });
    }
    LH_RETURN_IF_ERROR(internal::CheckArguments({Op::kReduceScatter, dtype, reduction, 0, count},
                                                size(), in, out));
    op_ = Op::kReduceScatter;
    return ReduceParts(
        in, static_cast<std::byte*>(out), [&](uint32_t r) { return r * count; },
        [&](uint32_t) { return count; }, queue);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    if (!Zips(dtype)) return Pass([&] { return below().AllGather(in, out, count, dtype, queue); });
    LH_RETURN_IF_ERROR(internal::CheckArguments(
        {.op = Op::kAllGather, .dtype = dtype, .count = count}, size(), in, out));
    op_ = Op::kAllGather;
    return GatherParts(
        in, out, [&](uint32_t r) { return r * count; }, [&](uint32_t) { return count; }, queue);
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    if (!Zips(dtype)) {
      return Pass([&] { return below().AllToAllV(in, send, out, receive, dtype, queue); });
    }
    LH_RETURN_IF_ERROR(internal::CheckAllToAll(rank(), size(), in, send, out, receive, dtype));
    std::vector<Sending> sends(size());
    std::vector<Receiving> receives(size());
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      sends[r] = {At(in, send[r].offset), send[r].count, r};
      receives[r] = {At(out, receive[r].offset), receive[r].count};
    }
    const Block& own = send[rank()];
    op_ = Op::kAllToAll;
    return Move(sends, receives,
                {.own =
                     [&](Queue on) {
                       return engine_->Copy(At(out, receive[rank()].offset), At(in, own.offset),
                                            own.count * kElementBytes, on);
                     }},
                queue);
  }
  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    LH_RETURN_IF_ERROR(below().Prepare(op, count, dtype));
    LH_RETURN_IF_ERROR(below().Prepare(Op::kAllToAll, AreaBytes(count), Dtype::kBytes));
    if (!Zips(dtype) || op == Op::kBroadcast || op == Op::kBarrier) return absl::OkStatus();
    LH_RETURN_IF_ERROR(ReserveAll(AreaBytes(count), AreaBytes(count), count));
    LH_RETURN_IF_ERROR(below().Prepare(Op::kAllGather, AreaBytes(count), Dtype::kBytes));
    if (op == Op::kAllReduce || op == Op::kReduceScatter) {
      LH_RETURN_IF_ERROR(Reserve(*engine_, (count + 8 * size()) * kElementBytes, &parts_));
    }
    return absl::OkStatus();
  }

  Status Wait(Queue queue, Deadline deadline) override {
    LH_RETURN_IF_ERROR(below().Wait(queue, deadline));
    return coder_->TakeFault();
  }
  Status fault() override {
    LH_RETURN_IF_ERROR(below().fault());
    return coder_->TakeFault();
  }
  Stats stats() const override {
    Stats all = CommunicatorOver::stats();
    if (blobs_ != nullptr) all.blob_bytes = blobs_->sent_bytes();
    return all;
  }

 private:
  static std::byte* At(void* data, uint64_t element) {
    return static_cast<std::byte*>(data) + element * kElementBytes;
  }
  static const std::byte* At(const void* data, uint64_t element) {
    return static_cast<const std::byte*>(data) + element * kElementBytes;
  }
  // Reserves memory for the pieces in flight: for the blobs that a piece sends and receives, and
  // for coding up to `elements` at once.
  Status ReserveAll(uint64_t sent_bytes, uint64_t received_bytes, uint64_t elements) {
    LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * sent_bytes, &sent_));
    LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * received_bytes, &received_));
    LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * size() * kSizeWordBytes, &words_));
    return coder_->Reserve(elements);
  }
  bool Zips(Dtype dtype) const { return dtype == Dtype::kBf16 && size() > 1; }

  // Returns the number of elements in a rank's part of an all-reduce: a multiple of 8 elements, 16
  // bytes, so that all parts begin aligned.
  uint64_t PartOf(uint64_t count) const {
    constexpr uint64_t kStep = 8;
    return (count + size() * kStep - 1) / (size() * kStep) * kStep;
  }
  // Rounds the bytes of blobs in one exchange up to a multiple of 16.
  static uint64_t AlignExchanged(uint64_t bytes) {
    constexpr uint64_t kStep = 16;
    return (bytes + kStep - 1) / kStep * kStep;
  }
  // Returns enough bytes for one blob of each peer, if the blobs hold `count` elements together.
  uint64_t AreaBytes(uint64_t count) const {
    return AlignBlob(MostBytes(count)) + size() * 2 * kBlobAlignment;
  }

  // Gathers parts: rank r's part begins at element first(r) of `out`; this rank's part is `in`.
  template <class First, class SizeOf>
  Status GatherParts(const void* in, void* out, const First& first, const SizeOf& size_of,
                     Queue queue) {
    const auto own = [&](Queue on) {
      return engine_->Copy(At(out, first(rank())), in, size_of(rank()) * kElementBytes, on);
    };
    if (size_of(0) == size_of(size() - 1)) return GatherEqual(in, out, size_of(0), own, queue);
    std::vector<Sending> sends(size());
    std::vector<Receiving> receives(size());
    const uint32_t blob = rank() == 0 ? 1 : 0;  // index of the first peer's blob in the area
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      sends[r] = {static_cast<const std::byte*>(in), size_of(rank()), blob};
      receives[r] = {At(out, first(r)), size_of(r)};
    }
    return Move(sends, receives, {.own = own}, queue);
  }
  using Work = std::function<Status(Queue queue)>;
  // GatherParts for parts of equal size: an all-gather of equally long blobs. If one blob does not
  // fit, all blobs travel again with room for the longest.
  Status GatherEqual(const void* in, void* out, uint64_t count, const Work& own, Queue queue);

  template <class First, class SizeOf>
  Status ReduceParts(const void* in, std::byte* out, const First& first, const SizeOf& size_of,
                     Queue queue) {
    const uint64_t own = size_of(rank());
    const uint64_t piece = PieceOf(own);
    LH_RETURN_IF_ERROR(
        Limited([&] { return Reserve(*engine_, size() * piece * kElementBytes, &parts_); }));
    std::vector<Sending> sends(size());
    std::vector<Receiving> receives(size());
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      sends[r] = {At(in, first(r)), size_of(r), r};
      receives[r] = {parts_.data() + r * piece * kElementBytes, own};
    }
    const auto sum = [&](uint64_t number, Queue on) {
      const uint64_t begin = std::min(number * piece, own);
      const uint64_t count = std::min(begin + piece, own) - begin;
      if (count == 0) return absl::OkStatus();
      std::vector<const void*> parts;
      for (uint32_t r = 0; r < size(); ++r) {
        parts.push_back(r == rank() ? At(in, first(r) + begin) : receives[r].data);
      }
      return engine_->Sum(parts, count, Dtype::kBf16, out + begin * kElementBytes, on);
    };
    return Move(sends, receives, {.finish = sum}, queue);
  }

  struct Extras {
    // Uses each decoded piece. The next piece is decoded to the same addresses after this.
    std::function<Status(uint64_t piece, Queue queue)> finish;
    // This rank's work on its own part while the other parts travel.
    Work own;
  };

  // Returns the maximum number of elements in a piece.
  uint64_t PieceOf(uint64_t count) const {
    if (options_.piece_elements == 0 || engine_->device() == nullptr) return count;
    return std::min(count, options_.piece_elements);
  }
  // Sends every peer its part; receives and decodes the parts of others.
  Status Move(std::span<const Sending> sends, std::span<const Receiving> receives,
              const Extras& extras, Queue queue);

  StatusOr<std::span<const uint64_t>> AwaitSizes(uint64_t read) {
    auto words = engine_->Await(
        read, [this] { return status(); }, Deadline::After(options_.call_limit));
    if (absl::IsDeadlineExceeded(words.status())) Abort(words.status());
    return words;
  }

  struct Piece;
  uint64_t FirstBytes(uint64_t elements) const;
  // Counts the bytes of escapes in a blob that this rank sends. A blob of MostBytes is not
  // compressed and has none.
  void CountEscapes(uint64_t elements, uint64_t blob_bytes) {
    if (blob_bytes < MostBytes(elements)) counted().escapes += blob_bytes - StaticBytes(elements);
  }
  Status SendFirst(const Piece& piece, Queue queue, uint64_t* read);
  // Returns a message that is the blob at area + at, as long as the blob's size word says.
  static SizedBlock Whole(const std::byte* area, uint64_t at, uint64_t elements) {
    if (elements == 0) return {};
    return {at, MostBytes(elements), SizeWord(area + at), codec::kBlobHeaderBytes};
  }
  // Sends whole blobs, whose sizes the host does not know.
  Status SendWhole(const Piece& piece, Queue queue);
  // Returns whether the host waits for sizes.
  bool waits() const { return blobs_ == nullptr && options_.exchange != Exchange::kBounded; }
  bool sizes_first() const {
    return blobs_ == nullptr && options_.exchange == Exchange::kSizesFirst;
  }
  // Waits for the sizes and sends what SendFirst left out. `late`: ranks whose blobs are complete
  // only after this.
  Status SendRest(const Piece& piece, uint64_t read, std::vector<uint32_t>* late, Queue queue);

  const Options options_;
  const std::unique_ptr<Engine> engine_;
  const std::unique_ptr<Coder> coder_;
  Pipeline pipeline_;
  Blobs* const blobs_;      // null: the host must know lengths
  Op op_ = Op::kAllReduce;  // of the current call
  OwnedMemory sent_, received_, parts_, words_;
  // True if a blob of the last all-gather did not fit: then the next one sends sizes first. Equal
  // on all ranks.
  bool wide_ = false;
};

// The blobs of one piece in flight.
struct ZipCommunicator::Piece {
  Layout send, receive;
  std::byte* send_area = nullptr;
  std::byte* receive_area = nullptr;
  std::span<const Sending> sends;  // Sending::blob is an index in send_area

  uint64_t SendAt(uint32_t peer) const { return send.offsets[sends[peer].blob]; }
};

}  // namespace longhaul::collective::zip
