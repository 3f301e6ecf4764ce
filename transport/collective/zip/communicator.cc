#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "transport/collective/zip/zip_communicator.h"

namespace longhaul::collective::zip {

Status ZipCommunicator::Move(std::span<const Sending> sends, std::span<const Receiving> receives,
                             const Extras& extras, Queue queue) {
  uint64_t most = 0;
  for (uint32_t r = 0; r < size(); ++r) {
    most = std::max({most, sends[r].count, receives[r].count});
    if (sends[r].count > kMaxElements || receives[r].count > kMaxElements) {
      return InvalidArgument("expected at most {} elements for a rank, got {}", kMaxElements,
                             std::max(sends[r].count, receives[r].count));
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
  return blobs_->Exchange(op_, piece.send_area, send, piece.receive_area, receive, queue);
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

StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Communicator> below,
                                               const cuda::Device* device, const Options& options) {
  if (!(options.escape_share >= 0 && options.escape_share <= 1)) {
    return InvalidArgument("expected a share of escapes from 0 to 1, got {}", options.escape_share);
  }
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, EngineFor(*below, device));
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Coder> coder, Coder::Create(engine.get()));
  LH_ASSIGN_OR_RETURN(Pipeline pipeline, Pipeline::Create(device));
  return std::make_unique<ZipCommunicator>(std::move(below), options, std::move(engine),
                                           std::move(coder), std::move(pipeline));
}

}  // namespace longhaul::collective::zip
