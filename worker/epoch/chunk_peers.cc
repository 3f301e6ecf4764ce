#include "worker/epoch/chunk_peers.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <variant>

#include "base/hash.h"
#include "base/log.h"
#include "base/peer_log.h"
#include "base/units.h"
#include "proto/wire/chunk_word.h"
#include "worker/data/chunk_requests.h"
#include "worker/shards/line_pace.h"

namespace longhaul::worker {
namespace {

using transport::Lane;
using transport::Link;
using Bytes = std::vector<std::byte>;

// Neighbours open their plan's links within this time.
constexpr absl::Duration kOpenLimit = absl::Minutes(2);
constexpr absl::Duration kCloseLimit = absl::Seconds(1);
// How often `given_up` is polled.
constexpr std::chrono::milliseconds kLook{20};
// Share of the line while tensors keep it busy. Tokens are a small part of what a step sends, and a
// step waits for them.
constexpr double kShare = 0.1;
constexpr uint32_t kPiecesUnderWay = 16;
// Nobody waits to hear that this peer is away, so its link is quieter than one for tensors.
constexpr absl::Duration kHeartbeat = absl::Milliseconds(250), kSuspectAfter = absl::Seconds(2);

ChunkId IdOf(const wire::ChunkAsk& ask) {
  return {.source = ask.source,
          .text = ask.validation ? Text::kValidation : Text::kTraining,
          .shard = ask.shard,
          .mask = ask.mask,
          .chunk = ask.chunk};
}

bool HasHash(std::span<const std::byte> bytes, const std::string& sha256) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.HexDigest() == sha256;
}

}  // namespace

// The other worker of a pair, over whichever link opens.
class ChunkPeers::Peer : public std::enable_shared_from_this<Peer> {
 public:
  Peer(const ChunkPeersOptions& options, ChunkPair pair)
      : pair_(std::move(pair)),
        run_(options.run),
        stamp_(options.stamp),
        transport_(options.transports.at(pair_.transport)),
        traffic_(options.traffic),
        silence_(options.silence),
        links_(pair_.ways.size()) {}

  const CellId& cell() const { return pair_.peer; }
  std::string name() const { return ToString(pair_.peer); }

  void Begin(const ChunkPeersOptions& options) {
    opening_ = pair_.ways.size();
    const Deadline deadline = Deadline::After(kOpenLimit);
    transport::LinkOptions link{.heartbeat_interval = kHeartbeat,
                                .suspect_after = kSuspectAfter,
                                .peer_timeout = options.peer_timeout,
                                .credits = 2 * kPiecesUnderWay,
                                .sealed = options.sealed};
    for (size_t i = 0; i < pair_.ways.size(); ++i) {
      link.peer_at = pair_.ways[i].addresses;
      const auto handler = std::make_shared<Way>(shared_from_this(), i);
      const auto opened = [self = shared_from_this(), i](StatusOr<std::shared_ptr<Link>> open) {
        self->OnOpened(i, std::move(open));
      };
      const ChunkPair::Way& way = pair_.ways[i];
      transport_->Open(way.dials, way.addresses, KeyOf(i), options.link_secret, handler, link,
                       deadline, opened);
    }
    thread_ = std::thread([this] { Answer(); });
  }
  void Serve(const std::shared_ptr<SetChunks>& chunks) {
    const std::lock_guard lock(mutex_);
    chunks_ = chunks;
    changed_.notify_all();
  }
  // As ChunkPeers'.
  StatusOr<Bytes> Fetch(const ChunkId& id, uint64_t bytes, const std::string& sha256,
                        const ChunkGivenUp& given_up) {
    std::unique_lock lock(mutex_);
    LH_ASSIGN_OR_RETURN(const uint32_t request, BeginRequest(lock, id, bytes, given_up));
    lock.unlock();
    Say(Lane::kControl,
        wire::EncodeChunkWord(wire::ChunkAsk{.request = request,
                                             .validation = id.text == Text::kValidation,
                                             .mask = id.mask,
                                             .source = id.source,
                                             .shard = id.shard,
                                             .chunk = id.chunk}));
    lock.lock();
    const Status answered = Await(lock, request, given_up);
    const bool not_here =
        answered.ok() && requests_.StateOf(request) == ChunkRequests::State::kNotHere;
    Bytes chunk = requests_.End(request);
    if (not_here) not_there_.insert(id.source);
    lock.unlock();
    if (absl::IsDeadlineExceeded(answered)) {
      LogWarning("run {}: {} gave no part of a chunk for {}; it is not asked for {}", run_.value(),
                 name(), longhaul::FormatDuration(silence_), longhaul::FormatDuration(kSilentFor));
    }
    LH_RETURN_IF_ERROR(answered);
    if (not_here) return absl::NotFoundError("it does not have the chunk");
    if (HasHash(chunk, sha256)) return chunk;
    Break("it sent other bytes than the list of the data sets says");
    return absl::DataLossError("it sent other bytes");
  }
  void Readdress(const std::vector<std::string>& addresses) {
    for (size_t i = 0; i < pair_.ways.size(); ++i) {
      if (pair_.ways[i].dials) transport_->Readdress(KeyOf(i), addresses);
    }
  }
  void GiveUp() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
  }
  void Close() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      asks_.clear();
      changed_.notify_all();
    }
    for (size_t i = 0; i < pair_.ways.size(); ++i) transport_->Cancel(KeyOf(i));
    for (const auto& link : TakeLinks()) {
      if (link) link->Close(Deadline::After(kCloseLimit));
    }
    // Does not hold mutex_ while joining: the thread takes it before it ends.
    if (thread_.joinable()) thread_.join();
    const std::lock_guard lock(mutex_);
    chunks_.reset();
  }

 private:
  // One link's events.
  class Way : public transport::LinkHandler {
   public:
    Way(std::shared_ptr<Peer> peer, size_t number) : peer_(std::move(peer)), number_(number) {}
    void OnFrame(Lane lane, std::span<const std::byte> payload) override {
      peer_->OnFrame(lane, payload);
    }
    void OnClosed(const Status& reason) override { peer_->OnClosed(number_, reason); }

   private:
    const std::shared_ptr<Peer> peer_;
    const size_t number_;
  };

  transport::LinkKey KeyOf(size_t way) const {
    // A key of its own, so that it cannot meet a link of the run.
    return {RunId(fmt::format("chunks:{}", run_.value())), stamp_, pair_.ways[way].number};
  }
  void OnOpened(size_t way, StatusOr<std::shared_ptr<Link>> link) {
    std::unique_lock lock(mutex_);
    --opening_;
    changed_.notify_all();
    if (!link.ok()) {
      const bool last = opening_ == 0 && OpenLink() == nullptr && !closing_;
      lock.unlock();
      if (last) {
        LogInfo("run {}: no link for chunks of data sets with {} on worker {}: {}", run_.value(),
                name(), pair_.peer_worker, Message(link.status()));
      }
      return;
    }
    // A link that opens after Close or Break must not stay open.
    if (!closing_ && !broken_) {
      links_[way] = *std::move(link);
      return;
    }
    lock.unlock();
    (*link)->Close(Deadline::After(absl::ZeroDuration()));
  }
  void OnClosed(size_t way, const Status& reason) {
    {
      const std::lock_guard lock(mutex_);
      links_[way].reset();
      changed_.notify_all();
      if (closing_ || broken_ || OpenLink() != nullptr) return;
      asks_.clear();
    }
    LogInfo("run {}: the link for chunks of data sets with {} has ended: {}", run_.value(), name(),
            Message(reason));
  }
  void OnFrame(Lane lane, std::span<const std::byte> payload) {
    Status taken;
    {
      const std::lock_guard lock(mutex_);
      if (closing_ || broken_) return;
      taken = Take(lane, payload);
      changed_.notify_all();
    }
    if (!taken.ok()) Break(std::string(Message(taken)));
  }
  // Handles a frame of the peer. The caller holds mutex_.
  Status Take(Lane lane, std::span<const std::byte> payload) {
    if (lane == Lane::kBulk) {
      LH_ASSIGN_OR_RETURN(const wire::ChunkPiece piece, wire::DecodeChunkPiece(payload));
      return requests_.Take(piece.request, piece.bytes);
    }
    LH_ASSIGN_OR_RETURN(const wire::ChunkWord word, wire::DecodeChunkWord(payload));
    if (const auto* not_here = std::get_if<wire::ChunkNotHere>(&word)) {
      return requests_.TakeNotHere(not_here->request);
    }
    // The ask that is being answered has left asks_, but counts, too.
    if (asks_.size() + (answering_ ? 1 : 0) == kMostAsks) {
      return InvalidArgument("expected at most {} asks at a time, and more came", kMostAsks);
    }
    asks_.push_back(std::get<wire::ChunkAsk>(word));
    return absl::OkStatus();
  }
  // The peer broke the protocol: it is neither asked nor answered any more.
  void Break(const std::string& how) {
    {
      const std::lock_guard lock(mutex_);
      broken_ = true;
      asks_.clear();
      changed_.notify_all();
    }
    LogAboutPeer(LogLevel::kWarn, pair_.peer_worker,
                 fmt::format("run {}: {} on worker {} is asked for chunks of data sets no more in "
                             "this epoch: {}",
                             run_.value(), name(), pair_.peer_worker, how));
    for (const auto& link : TakeLinks()) {
      if (link) link->Close(Deadline::After(absl::ZeroDuration()));
    }
  }
  // Returns the first open link; null: no link is open. The caller holds mutex_.
  std::shared_ptr<Link> OpenLink() const {
    const auto open =
        std::ranges::find_if(links_, [](const auto& link) { return link != nullptr; });
    return open == links_.end() ? nullptr : *open;
  }
  std::vector<std::shared_ptr<Link>> TakeLinks() {
    const std::lock_guard lock(mutex_);
    return std::exchange(links_, std::vector<std::shared_ptr<Link>>(pair_.ways.size()));
  }
  bool NobodyWaits() const {
    const std::lock_guard lock(mutex_);
    return closing_ || OpenLink() == nullptr;
  }

  StatusOr<uint32_t> BeginRequest(std::unique_lock<std::mutex>& lock, const ChunkId& id,
                                  uint64_t bytes, const ChunkGivenUp& given_up) {
    if (!opens_until_) opens_until_ = Now() + kOpenPatience;
    while (OpenLink() == nullptr && opening_ > 0 && Now() < *opens_until_) {
      if (closing_ || given_up_ || broken_) break;
      changed_.wait_for(lock, kLook);
      // Calls given_up without mutex_, because it is the caller's code.
      lock.unlock();
      const bool unwanted = given_up();
      lock.lock();
      if (unwanted) return absl::CancelledError("the chunk is not wanted any more");
    }
    if (closing_ || given_up_ || broken_ || OpenLink() == nullptr) {
      return absl::UnavailableError("there is no link");
    }
    if (Now() < silent_until_) return absl::UnavailableError("it was silent");
    if (not_there_.contains(id.source))
      return absl::NotFoundError("it does not have that data set");
    if (requests_.open() == kMostAsks) return absl::UnavailableError("it is asked enough");
    return requests_.Begin(bytes);
  }
  // Waits until the request is answered or has failed. `lock` holds mutex_ at the call and at the
  // return.
  Status Await(std::unique_lock<std::mutex>& lock, uint32_t request, const ChunkGivenUp& given_up) {
    uint64_t got = 0;
    MonoTime heard = Now();
    while (requests_.StateOf(request) == ChunkRequests::State::kComing) {
      if (closing_ || given_up_ || broken_ || OpenLink() == nullptr) {
        return absl::UnavailableError("the link is closed");
      }
      if (requests_.BytesOf(request) > got) heard = Now();
      got = requests_.BytesOf(request);
      if (Now() - heard >= silence_) {
        silent_until_ = Now() + kSilentFor;
        return absl::DeadlineExceededError("it is silent");
      }
      changed_.wait_for(lock, kLook);
      lock.unlock();
      const bool unwanted = given_up();
      lock.lock();
      if (unwanted) return absl::CancelledError("the chunk is not wanted any more");
    }
    return absl::OkStatus();
  }

  // Runs on thread_: answers the peer's asks, one after the other, until Close.
  void Answer() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || (!asks_.empty() && chunks_ != nullptr); });
      if (closing_) return;
      const wire::ChunkAsk ask = asks_.front();
      asks_.pop_front();
      answering_ = true;
      const std::shared_ptr<SetChunks> chunks = chunks_;
      lock.unlock();
      AnswerOne(ask, *chunks);
      lock.lock();
      answering_ = false;
    }
  }
  void AnswerOne(const wire::ChunkAsk& ask, SetChunks& chunks) {
    const StatusOr<SharedChunk> chunk =
        chunks.Give(IdOf(ask), pair_.fetches_for, [this] { return NobodyWaits(); });
    if (chunk.ok()) {
      SendPieces(ask.request, *chunk);
    } else {
      Say(Lane::kControl, wire::EncodeChunkWord(wire::ChunkNotHere{ask.request}));
    }
  }
  void SendPieces(uint32_t request, const SharedChunk& chunk) {
    const LinePace pace{.bits_per_second = pair_.bits_per_second, .share = kShare};
    const size_t piece_bytes = std::min(
        pace.PieceBytes(), transport::kMaxFramePayloadBytes - wire::kChunkPieceHeaderBytes);
    const auto header = std::make_shared<const std::string>(wire::EncodeChunkPieceHeader(request));
    MonoTime last;  // when a piece was last sent
    for (size_t at = 0; at < chunk->size(); at += piece_bytes) {
      const auto piece = std::span(*chunk).subspan(at, std::min(piece_bytes, chunk->size() - at));
      // Sends no faster than the line carries: tensors would wait behind pieces that queue in front
      // of it.
      absl::SleepFor(pace.LineTime(piece.size()) - (Now() - last));
      traffic_->AwaitQuiet(Now() + pace.PatienceFor(piece.size()));
      last = Now();
      std::shared_ptr<Link> link;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] {
          return closing_ || OpenLink() == nullptr || under_way_ < kPiecesUnderWay;
        });
        link = closing_ ? nullptr : OpenLink();
        if (!link) return;
        ++under_way_;
      }
      const auto taken = [self = shared_from_this(), header, chunk](const Status&) {
        const std::lock_guard lock(self->mutex_);
        --self->under_way_;
        self->changed_.notify_all();
      };
      link->Send(Lane::kBulk, {.header = std::as_bytes(std::span(*header)), .body = piece}, taken);
    }
  }
  void Say(Lane lane, std::string text) {
    std::shared_ptr<Link> link;
    {
      const std::lock_guard lock(mutex_);
      link = OpenLink();
    }
    if (!link) return;
    const auto owned = std::make_shared<const std::string>(std::move(text));
    link->Send(lane, {.header = {}, .body = std::as_bytes(std::span(*owned))},
               [owned](const Status&) {});
  }

  const ChunkPair pair_;
  const RunId run_;
  const Stamp stamp_;
  transport::Transport* const transport_;
  TrafficWatch* const traffic_;
  const absl::Duration silence_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Link>> links_;  // by way; null: not open
  size_t opening_ = 0;
  bool closing_ = false, given_up_ = false, broken_ = false;
  // This side's asks.
  ChunkRequests requests_;
  std::optional<MonoTime> opens_until_;
  MonoTime silent_until_;
  std::set<uint32_t> not_there_;  // sources of which it did not have a chunk
  // The other side's.
  std::deque<wire::ChunkAsk> asks_;
  bool answering_ = false;  // one that is not in asks_ any more
  std::shared_ptr<SetChunks> chunks_;
  uint32_t under_way_ = 0;
  std::thread thread_;
};

ChunkPeers::ChunkPeers(const ChunkPeersOptions& options) {
  for (const ChunkPair& pair : options.pairs) {
    if (!options.transports.contains(pair.transport)) continue;
    const auto peer = std::make_shared<Peer>(options, pair);
    peer->Begin(options);
    peers_.push_back(peer);
  }
}

ChunkPeers::~ChunkPeers() {
  Close();
}

void ChunkPeers::Serve(const std::shared_ptr<SetChunks>& chunks) {
  for (const auto& peer : peers_) peer->Serve(chunks);
}

StatusOr<OtherReaders::Found> ChunkPeers::Fetch(const ChunkId& id, uint64_t bytes,
                                                const std::string& sha256,
                                                const ChunkGivenUp& given_up) {
  Status last = absl::NotFoundError("there is no other worker that reads the same");
  for (const auto& peer : peers_) {
    StatusOr<Bytes> chunk = peer->Fetch(id, bytes, sha256, given_up);
    if (chunk.ok()) return Found{*std::move(chunk), peer->name()};
    if (absl::IsCancelled(chunk.status())) return chunk.status();
    last = chunk.status();
  }
  return last;
}

void ChunkPeers::Readdress(const CellId& peer, const std::vector<std::string>& addresses) {
  for (const auto& one : peers_) {
    if (one->cell() == peer) one->Readdress(addresses);
  }
}

void ChunkPeers::GiveUp() {
  for (const auto& peer : peers_) peer->GiveUp();
}

void ChunkPeers::Close() {
  // All give up first, so that no wait for one peer holds up the end of another.
  for (const auto& peer : peers_) peer->GiveUp();
  for (const auto& peer : peers_) peer->Close();
}

}  // namespace longhaul::worker
