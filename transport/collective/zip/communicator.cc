#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
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
namespace {

constexpr uint64_t kElementBytes = 2;
constexpr uint64_t kPlaces = 2;  // of pieces at a time (pipeline.h)
constexpr uint64_t kMaxElements = (uint64_t{1} << 32) - 1;

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
    return ReduceParts(
        in, static_cast<std::byte*>(out), [&](uint32_t r) { return r * count; },
        [&](uint32_t) { return count; }, queue);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    if (!Zips(dtype)) return Pass([&] { return below().AllGather(in, out, count, dtype, queue); });
    LH_RETURN_IF_ERROR(internal::CheckArguments(
        {.op = Op::kAllGather, .dtype = dtype, .count = count}, size(), in, out));
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
  Stats stats() const override {
    Stats all = CommunicatorOver::stats();
    if (blobs_ != nullptr) all.sent_bytes += blobs_->sent_bytes();
    return all;
  }

 private:
  static std::byte* At(void* data, uint64_t element) {
    return static_cast<std::byte*>(data) + element * kElementBytes;
  }
  static const std::byte* At(const void* data, uint64_t element) {
    return static_cast<const std::byte*>(data) + element * kElementBytes;
  }
  // Makes room for a piece: its blobs to send and to receive have these sizes, and `elements` is
  // the longest part that is coded at once.
  Status ReserveAll(uint64_t sent_bytes, uint64_t received_bytes, uint64_t elements) {
    LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * sent_bytes, &sent_));
    LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * received_bytes, &received_));
    LH_RETURN_IF_ERROR(Reserve(*engine_, kPlaces * size() * kSizeWordBytes, &words_));
    return coder_->Reserve(elements);
  }
  bool Zips(Dtype dtype) const { return dtype == Dtype::kBf16 && size() > 1; }

  // A part of an all-reduce: 16 bytes' worth of elements, so that all parts begin aligned.
  uint64_t PartOf(uint64_t count) const {
    constexpr uint64_t kStep = 8;
    return (count + size() * kStep - 1) / (size() * kStep) * kStep;
  }
  // What travels of blobs in one exchange: 16 bytes' worth.
  static uint64_t AlignExchanged(uint64_t bytes) {
    constexpr uint64_t kStep = 16;
    return (bytes + kStep - 1) / kStep * kStep;
  }
  // Of blobs that hold `count` elements together.
  uint64_t AreaBytes(uint64_t count) const {
    return AlignBlob(MostBytes(count)) + size() * 2 * kBlobAlignment;
  }

  // Rank r's part begins at element first(r) of `out`, this rank's is `in`.
  template <class First, class SizeOf>
  Status GatherParts(const void* in, void* out, const First& first, const SizeOf& size_of,
                     Queue queue) {
    const auto own = [&](Queue on) {
      return engine_->Copy(At(out, first(rank())), in, size_of(rank()) * kElementBytes, on);
    };
    if (size_of(0) == size_of(size() - 1)) return GatherEqual(in, out, size_of(0), own, queue);
    std::vector<Sending> sends(size());
    std::vector<Receiving> receives(size());
    const uint32_t blob = rank() == 0 ? 1 : 0;  // the first peer's place in the area
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      sends[r] = {static_cast<const std::byte*>(in), size_of(rank()), blob};
      receives[r] = {At(out, first(r)), size_of(r)};
    }
    return Move(sends, receives, {.own = own}, queue);
  }
  using Work = std::function<Status(Queue queue)>;
  // The same for parts of one size, which the all-gather below carries: all ranks' blobs equally
  // long. One that is longer than the room for it makes all travel again, as long as the longest.
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
    // Takes each decoded piece, which begins at the receivings' addresses again and again.
    std::function<Status(uint64_t piece, Queue queue)> finish;
    // What this rank does with its own part, while others travel.
    Work own;
  };

  // What a piece holds of `count` elements at most.
  uint64_t PieceOf(uint64_t count) const {
    if (options_.piece_elements == 0 || engine_->device() == nullptr) return count;
    return std::min(count, options_.piece_elements);
  }
  // Sends every peer its part and gets the others', decoded.
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
  // Adds those of a blob that this rank sends. A blob of MostBytes has the elements themselves.
  void CountEscapes(uint64_t elements, uint64_t blob_bytes) {
    if (blob_bytes < MostBytes(elements)) counted().escapes += blob_bytes - StaticBytes(elements);
  }
  Status SendFirst(const Piece& piece, Queue queue, uint64_t* read);
  // A blob as a message that is as long as the blob's own word says.
  static SizedBlock Whole(const std::byte* area, uint64_t at, uint64_t elements) {
    if (elements == 0) return {};
    return {at, MostBytes(elements), SizeWord(area + at), codec::kBlobHeaderBytes};
  }
  // Whole blobs, whose sizes no host knows.
  Status SendWhole(const Piece& piece, Queue queue);
  // The host waits for sizes.
  bool waits() const { return blobs_ == nullptr && options_.exchange != Exchange::kBounded; }
  bool sizes_first() const {
    return blobs_ == nullptr && options_.exchange == Exchange::kSizesFirst;
  }
  // `late`: ranks whose blobs are whole only now.
  Status SendRest(const Piece& piece, uint64_t read, std::vector<uint32_t>* late, Queue queue);

  const Options options_;
  const std::unique_ptr<Engine> engine_;
  const std::unique_ptr<Coder> coder_;
  Pipeline pipeline_;
  Blobs* const blobs_;  // null: the communicator below has none
  OwnedMemory sent_, received_, parts_, words_;
  // The last all-gather had no room for a blob, so the next one sends sizes first. All ranks know.
  bool wide_ = false;
};

// A piece's blobs on their way.
struct ZipCommunicator::Piece {
  Layout send, receive;
  std::byte* send_area = nullptr;
  std::byte* receive_area = nullptr;
  std::span<const Sending> sends;  // of which place of the area

  uint64_t SendAt(uint32_t peer) const { return send.offsets[sends[peer].blob]; }
};

Status ZipCommunicator::Move(std::span<const Sending> sends, std::span<const Receiving> receives,
                             const Extras& extras, Queue queue) {
  uint64_t most = 0;
  for (uint32_t r = 0; r < size(); ++r) {
    most = std::max({most, sends[r].count, receives[r].count});
    if (sends[r].count > kMaxElements || receives[r].count > kMaxElements) {
      return absl::InvalidArgumentError(
          fmt::format("expected at most {} elements for a rank, got {}", kMaxElements,
                      std::max(sends[r].count, receives[r].count)));
    }
  }
  const uint64_t piece_elements = std::max<uint64_t>(PieceOf(most), 1);
  const uint64_t pieces = std::max<uint64_t>((most + piece_elements - 1) / piece_elements, 1);
  const Layout send_space = LayoutOf(sends, piece_elements, 0);
  const Layout receive_space = LayoutOf(receives, piece_elements, 0);
  LH_RETURN_IF_ERROR(
      Limited([&] { return ReserveAll(send_space.bytes, receive_space.bytes, piece_elements); }));
  const auto piece_of = [&](uint64_t number) {
    Piece piece;
    piece.send = LayoutOf(sends, piece_elements, number);
    piece.receive = LayoutOf(receives, piece_elements, number);
    piece.send_area = sent_.data() + number % kPlaces * send_space.bytes;
    piece.receive_area = received_.data() + number % kPlaces * receive_space.bytes;
    piece.sends = sends;
    return piece;
  };
  std::array<uint64_t, kPlaces> reads{};
  const auto encode = [&](uint64_t number, Queue on) -> Status {
    const Piece piece = piece_of(number);
    for (uint32_t r = 0; r < size(); ++r) {
      const uint64_t count = piece.send.counts[r];
      if (r == rank() || count == 0 || sends[r].blob != r) continue;
      LH_RETURN_IF_ERROR(coder_->Encode(sends[r].data + number * piece_elements * kElementBytes,
                                        count, piece.send_area + piece.SendAt(r), on));
    }
    return number == 0 && extras.own ? pipeline_.Fork(on) : absl::OkStatus();
  };
  const auto first = [&](uint64_t number, Queue on) -> Status {
    uint64_t* const read = waits() ? &reads[number % kPlaces] : nullptr;
    LH_RETURN_IF_ERROR(SendFirst(piece_of(number), on, read));
    return number == 0 && extras.own ? pipeline_.Beside(on, extras.own) : absl::OkStatus();
  };
  const auto decode_of = [&](const Piece& piece, uint64_t number, uint32_t r, uint64_t bytes,
                             IfCut if_cut, Queue on) {
    const uint64_t begin = extras.finish ? 0 : number * piece_elements;
    return coder_->Decode(piece.receive_area + piece.receive.offsets[r], bytes,
                          piece.receive.counts[r], receives[r].data + begin * kElementBytes, if_cut,
                          on);
  };
  // What came whole is decoded while the host still waits for sizes.
  const auto decode = [&](uint64_t number, Queue on) -> Status {
    const Piece piece = piece_of(number);
    for (uint32_t r = 0; r < size(); ++r) {
      const uint64_t count = piece.receive.counts[r];
      if (r == rank() || count == 0) continue;
      LH_RETURN_IF_ERROR(decode_of(piece, number, r, FirstBytes(count),
                                   waits() ? IfCut::kLeave : IfCut::kIsFault, on));
    }
    return absl::OkStatus();
  };
  std::array<std::vector<uint32_t>, kPlaces> late;  // ranks
  const auto rest = [&](uint64_t number, Queue on) {
    return SendRest(piece_of(number), reads[number % kPlaces], &late[number % kPlaces], on);
  };
  const auto finish = [&](uint64_t number, Queue on) -> Status {
    const Piece piece = piece_of(number);
    for (const uint32_t r : late[number % kPlaces]) {
      LH_RETURN_IF_ERROR(
          decode_of(piece, number, r, MostBytes(piece.receive.counts[r]), IfCut::kIsFault, on));
    }
    return extras.finish ? extras.finish(number, on) : absl::OkStatus();
  };
  std::vector<Step> steps = {{.lag = 0, .wire = false, .run = encode},
                             {.lag = 0, .wire = true, .run = first}};
  if (!sizes_first()) steps.push_back({.lag = 1, .wire = false, .run = decode});
  if (waits()) steps.push_back({.lag = 1, .wire = true, .run = rest});
  steps.push_back({.lag = 1, .wire = false, .run = finish});
  LH_RETURN_IF_ERROR(Limited([&] { return pipeline_.Run(pieces, steps, queue); }));
  if (extras.own) LH_RETURN_IF_ERROR(pipeline_.Join(queue));
  ++counted().calls;
  for (uint32_t r = 0; r < size(); ++r) {
    if (r != rank()) counted().tensor_bytes += sends[r].count * kElementBytes;
  }
  return absl::OkStatus();
}

Status ZipCommunicator::GatherEqual(const void* in, void* out, uint64_t count, const Work& own,
                                    Queue queue) {
  if (count > kMaxElements) {
    return absl::InvalidArgumentError(
        fmt::format("expected at most {} elements for a rank, got {}", kMaxElements, count));
  }
  if (count == 0) return absl::OkStatus();
  const uint64_t piece_elements = PieceOf(count);
  const uint64_t pieces = (count + piece_elements - 1) / piece_elements;
  const uint64_t space = AlignBlob(MostBytes(piece_elements));
  LH_RETURN_IF_ERROR(Limited([&] { return ReserveAll(space, size() * space, piece_elements); }));
  const bool sizes_first = this->sizes_first() || (wide_ && waits());
  bool wide = false;
  std::array<uint64_t, kPlaces> reads{}, lengths{};
  std::array<bool, kPlaces> late{};
  const auto count_of = [&](uint64_t number) { return CountAt(count, piece_elements, number); };
  const auto blob_of = [&](uint64_t number) { return sent_.data() + number % kPlaces * space; };
  const auto blobs_of = [&](uint64_t number) {
    return received_.data() + number % kPlaces * size() * space;
  };
  const auto encode = [&](uint64_t number, Queue on) -> Status {
    LH_RETURN_IF_ERROR(
        coder_->Encode(At(in, number * piece_elements), count_of(number), blob_of(number), on));
    return number == 0 ? pipeline_.Fork(on) : absl::OkStatus();
  };
  const auto gather = [&](uint64_t number, uint64_t length, Queue on) {
    length = AlignExchanged(length);
    lengths[number % kPlaces] = length;
    if (blobs_ != nullptr) {
      const uint64_t elements = count_of(number);
      const std::vector<SizedBlock> send(size(), Whole(blob_of(number), 0, elements));
      std::vector<Block> receive(size());
      for (uint32_t r = 0; r < size(); ++r) receive[r] = {r * length, MostBytes(elements)};
      return blobs_->Exchange(blob_of(number), send, blobs_of(number), receive, on);
    }
    counted().sent_bytes += (size() - 1) * length;
    return below().AllGather(blob_of(number), blobs_of(number), length, Dtype::kBytes, on);
  };
  const auto first = [&](uint64_t number, Queue on) -> Status {
    std::byte* const words = words_.data() + number % kPlaces * size() * kSizeWordBytes;
    std::vector<const void*> all;
    if (sizes_first) {
      LH_RETURN_IF_ERROR(
          below().AllGather(SizeWord(blob_of(number)), words, kSizeWordBytes, Dtype::kBytes, on));
      if (number == 0) LH_RETURN_IF_ERROR(pipeline_.Beside(on, own));
      for (uint32_t r = 0; r < size(); ++r) all.push_back(words + r * kSizeWordBytes);
    } else {
      LH_RETURN_IF_ERROR(gather(number, FirstBytes(count_of(number)), on));
      if (number == 0) LH_RETURN_IF_ERROR(pipeline_.Beside(on, own));
      if (!waits()) return absl::OkStatus();
      const uint64_t length = lengths[number % kPlaces];
      for (uint32_t r = 0; r < size(); ++r) {
        all.push_back(SizeWord(r == rank() ? blob_of(number) : blobs_of(number) + r * length));
      }
    }
    LH_ASSIGN_OR_RETURN(reads[number % kPlaces], engine_->Read(all, on));
    return absl::OkStatus();
  };
  const auto rest = [&](uint64_t number, Queue on) -> Status {
    LH_ASSIGN_OR_RETURN(const std::span<const uint64_t> words, AwaitSizes(reads[number % kPlaces]));
    uint64_t longest = 0;
    for (uint32_t r = 0; r < size(); ++r) {
      LH_ASSIGN_OR_RETURN(const uint64_t bytes, BlobBytes(count_of(number), words[r]));
      longest = std::max(longest, bytes);
      if (r == rank()) CountEscapes(count_of(number), bytes);
    }
    wide = wide || longest > FirstBytes(count_of(number));
    late[number % kPlaces] = sizes_first || longest > lengths[number % kPlaces];
    return late[number % kPlaces] ? gather(number, longest, on) : absl::OkStatus();
  };
  const auto decode_all = [&](uint64_t number, IfCut if_cut, Queue on) -> Status {
    const uint64_t length = lengths[number % kPlaces];
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      LH_RETURN_IF_ERROR(coder_->Decode(blobs_of(number) + r * length, length, count_of(number),
                                        At(out, r * count + number * piece_elements), if_cut, on));
    }
    return absl::OkStatus();
  };
  const auto decode = [&](uint64_t number, Queue on) {
    return decode_all(number, waits() ? IfCut::kLeave : IfCut::kIsFault, on);
  };
  const auto finish = [&](uint64_t number, Queue on) {
    return late[number % kPlaces] ? decode_all(number, IfCut::kIsFault, on) : absl::OkStatus();
  };
  std::vector<Step> steps = {{.lag = 0, .wire = false, .run = encode},
                             {.lag = 0, .wire = true, .run = first}};
  if (!sizes_first) steps.push_back({.lag = 1, .wire = false, .run = decode});
  if (waits()) {
    steps.push_back({.lag = 1, .wire = true, .run = rest});
    steps.push_back({.lag = 1, .wire = false, .run = finish});
  }
  LH_RETURN_IF_ERROR(Limited([&] { return pipeline_.Run(pieces, steps, queue); }));
  LH_RETURN_IF_ERROR(pipeline_.Join(queue));
  wide_ = wide;
  ++counted().calls;
  counted().tensor_bytes += (size() - 1) * count * kElementBytes;
  return absl::OkStatus();
}

// How many bytes of a blob travel before its size is known.
uint64_t ZipCommunicator::FirstBytes(uint64_t elements) const {
  if (elements == 0) return 0;
  if (blobs_ != nullptr) return MostBytes(elements);
  if (options_.exchange == Exchange::kSizesFirst) return kSizeWordBytes;
  const double escapes = std::ceil(static_cast<double>(elements) * options_.escape_share);
  return std::min(MostBytes(elements),
                  AlignExchanged(StaticBytes(elements) + static_cast<uint64_t>(escapes)));
}

// `read` null: sizes are not wanted.
Status ZipCommunicator::SendFirst(const Piece& piece, Queue queue, uint64_t* read) {
  if (blobs_ != nullptr) return SendWhole(piece, queue);
  const uint64_t skip = options_.exchange == Exchange::kSizesFirst ? kSizeWordOffset : 0;
  std::vector<Block> send(size()), receive(size());
  std::vector<const void*> words;
  for (uint32_t r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    send[r] = {piece.SendAt(r) + skip, FirstBytes(piece.send.counts[r])};
    receive[r] = {piece.receive.offsets[r] + skip, FirstBytes(piece.receive.counts[r])};
    counted().sent_bytes += send[r].count;
  }
  LH_RETURN_IF_ERROR(
      below().AllToAllV(piece.send_area, send, piece.receive_area, receive, Dtype::kBytes, queue));
  if (read == nullptr) return absl::OkStatus();
  for (uint32_t r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (send[r].count > 0) words.push_back(SizeWord(piece.send_area + piece.SendAt(r)));
    if (receive[r].count > 0) {
      words.push_back(SizeWord(piece.receive_area + piece.receive.offsets[r]));
    }
  }
  LH_ASSIGN_OR_RETURN(*read, engine_->Read(words, queue));
  return absl::OkStatus();
}

Status ZipCommunicator::SendWhole(const Piece& piece, Queue queue) {
  std::vector<SizedBlock> send(size());
  std::vector<Block> receive(size());
  for (uint32_t r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    send[r] = Whole(piece.send_area, piece.SendAt(r), piece.send.counts[r]);
    receive[r] = {piece.receive.offsets[r], MostBytes(piece.receive.counts[r])};
  }
  return blobs_->Exchange(piece.send_area, send, piece.receive_area, receive, queue);
}

Status ZipCommunicator::SendRest(const Piece& piece, uint64_t read, std::vector<uint32_t>* late,
                                 Queue queue) {
  late->clear();
  LH_ASSIGN_OR_RETURN(const std::span<const uint64_t> words, AwaitSizes(read));
  std::vector<Block> send(size()), receive(size());
  const bool all = options_.exchange == Exchange::kSizesFirst;
  const auto rest_of = [&](uint64_t at, uint64_t elements, uint64_t blob_bytes) {
    const uint64_t gone = all ? 0 : std::min(FirstBytes(elements), blob_bytes);
    return Block{at + gone, blob_bytes - gone};
  };
  size_t next = 0;
  for (uint32_t r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (const uint64_t count = piece.send.counts[r]; count > 0) {
      LH_ASSIGN_OR_RETURN(const uint64_t bytes, BlobBytes(count, words[next++]));
      CountEscapes(count, bytes);
      send[r] = rest_of(piece.SendAt(r), count, bytes);
      counted().sent_bytes += send[r].count;
    }
    if (const uint64_t count = piece.receive.counts[r]; count > 0) {
      LH_ASSIGN_OR_RETURN(const uint64_t bytes, BlobBytes(count, words[next++]));
      receive[r] = rest_of(piece.receive.offsets[r], count, bytes);
      if (receive[r].count > 0) late->push_back(r);
    }
  }
  return below().AllToAllV(piece.send_area, send, piece.receive_area, receive, Dtype::kBytes,
                           queue);
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Communicator> below,
                                               const cuda::Device* device, const Options& options) {
  if (!(options.escape_share >= 0 && options.escape_share <= 1)) {
    return absl::InvalidArgumentError(
        fmt::format("expected a share of escapes from 0 to 1, got {}", options.escape_share));
  }
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, EngineFor(*below, device));
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Coder> coder, Coder::Create(engine.get()));
  LH_ASSIGN_OR_RETURN(Pipeline pipeline, Pipeline::Create(device));
  return std::make_unique<ZipCommunicator>(std::move(below), options, std::move(engine),
                                           std::move(coder), std::move(pipeline));
}

}  // namespace longhaul::collective::zip
