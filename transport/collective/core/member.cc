#include "transport/collective/member.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "transport/collective/core/id.h"
#include "transport/collective/core/message.h"
#include "transport/collective/core/unix_socket.h"

namespace longhaul::collective {
namespace {

using internal::MessageKind;
using internal::MessageReader;
using internal::WakeFd;

// How long the rendezvous may take for what it does at once: to read a message, to tell an end.
constexpr absl::Duration kRendezvousLimit = absl::Seconds(1);

class MemberImpl : public Member {
 public:
  MemberImpl(const Place& place, UniqueFd fd, WakeFd wake)
      : place_(place),
        fd_(std::move(fd)),
        rendezvous_(internal::PeerOf(fd_).process),
        wake_(std::move(wake)),
        thread_([this] { Run(); }) {}

  ~MemberImpl() override {
    LH_CHECK(std::this_thread::get_id() != thread_.get_id(),
             "a group's member is destroyed in its own on_end");
    if (MemberImpl::status().ok()) {
      // Does not check the result: a peer that gets no goodbye sees a closed connection.
      (void)Send(MessageKind::kGoodbye, "", Deadline::After(kRendezvousLimit));
    }
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.Wake();
    thread_.join();
  }

  Status AwaitJoined(std::string_view secret, Deadline deadline) {
    {
      const std::lock_guard sending(sending_);
      // A rendezvous that refuses or ends says why before it closes.
      (void)Send(MessageKind::kJoin, internal::EncodeJoin({std::string(secret), place_}), deadline);
    }
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.time().ToChrono(),
                        [this] { return joined_ || !refused_.ok() || !end_.ok(); });
    if (!refused_.ok()) return refused_;
    if (!end_.ok()) return end_;
    if (joined_) return absl::OkStatus();
    const std::string text = came_to_join_ == 0 ? "the group's rendezvous did not answer in time"
                                                : Missing(came_to_join_) + " did not join in time";
    lock.unlock();
    return TooLate(text);
  }

  const Place& place() const override { return place_; }
  StatusOr<std::vector<std::string>> Tell(std::string_view word, Deadline deadline) override {
    if (word.size() > kMaxTellBytes) {
      return InvalidArgument("a member tells the others up to {} bytes at once, got {}",
                             kMaxTellBytes, word.size());
    }
    uint64_t number = 0;
    {
      const std::lock_guard sending(sending_);
      {
        const std::lock_guard lock(mutex_);
        if (!end_.ok()) return end_;
        number = ++last_round_;
      }
      const Status sent = Send(MessageKind::kTell, word, deadline);
      if (absl::IsDeadlineExceeded(sent)) return TooLate(std::string(Message(sent)));
      // On any other error the connection is closed, and the thread learns why.
    }
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.time().ToChrono(),
                        [&] { return rounds_[number].whole || !end_.ok(); });
    const Round round = std::move(rounds_[number]);
    rounds_.erase(number);
    if (round.whole) return round.words;
    if (!end_.ok()) return end_;
    lock.unlock();
    return TooLate(fmt::format("{} did not come in time to tell the group what it needs",
                               Missing(round.came)));
  }
  Status status() const override {
    const std::lock_guard lock(mutex_);
    return end_;
  }
  Status AwaitEnd(Deadline deadline) const override {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.time().ToChrono(), [this] { return !end_.ok(); });
    return end_;
  }
  void End(const Status& reason) override {
    if (!status().ok()) return;
    const std::string text =
        Printable(reason.ok() ? "no reason was given" : Message(reason), internal::kMaxReasonBytes);
    {
      const std::lock_guard sending(sending_);
      (void)Send(MessageKind::kEnd, text, Deadline::After(kRendezvousLimit));
    }
    // Waits for the reason that the rendezvous tells all ranks; it may be another rank's.
    if (!AwaitEnd(Deadline::After(kRendezvousLimit)).ok()) return;
    Ended(fmt::format("rank {} failed: {}", place_.rank, text));
    wake_.Wake();
  }
  void OnEnd(std::function<void(const Status&)> on_end) override {
    {
      std::unique_lock lock(mutex_);
      on_end_ = std::move(on_end);
      const bool inside_one = std::this_thread::get_id() == thread_.get_id();
      if (!inside_one) changed_.wait(lock, [this] { return !running_on_end_; });
    }
    wake_.Wake();
  }

 private:
  struct Round {
    uint64_t came = 0;  // bit r: rank r has told its word
    bool whole = false;
    std::vector<std::string> words;
  };

  void Run() {
    bool connected = true;
    while (true) {
      std::array<pollfd, 2> polled = {{{wake_.fd(), POLLIN, 0}, {fd_.get(), POLLIN, 0}}};
      if (::poll(polled.data(), connected ? 2 : 1, -1) < 0) continue;
      if (polled[0].revents != 0) wake_.Clear();
      if (connected && polled[1].revents != 0) connected = Read();
      RunOnEnd();
      const std::lock_guard lock(mutex_);
      if (stop_) return;
    }
  }
  // False: the connection says nothing more.
  bool Read() {
    std::array<char, size_t{64} << 10> chunk;
    const ssize_t got = ::recv(fd_.get(), chunk.data(), chunk.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) {
      Ended(
          fmt::format("rank 0 was lost: {}, which held the group's rendezvous, closed its "
                      "connection",
                      internal::NameProcess(rendezvous_)));
      return false;
    }
    reader_.Feed({chunk.data(), static_cast<size_t>(got)});
    while (true) {
      auto message = reader_.Next();
      Status taken = message.status();
      if (message.ok()) {
        if (!*message) return true;
        taken = Take(**message);
      }
      if (!taken.ok()) {
        Ended(fmt::format("the group's rendezvous sent what none sends: {}", Message(taken)));
        return false;
      }
    }
  }
  Status Take(const internal::GroupMessage& message) {
    std::unique_lock lock(mutex_);
    switch (message.kind) {
      case MessageKind::kRefused:
        refused_ = internal::DecodeRefused(message.payload);
        break;
      case MessageKind::kCame: {
        LH_ASSIGN_OR_RETURN(const auto came, internal::DecodeCame(message.payload));
        if (came.round == 0) came_to_join_ = came.ranks;
        if (came.round > whole_rounds_) rounds_[came.round].came = came.ranks;
        break;
      }
      case MessageKind::kJoined:
        joined_ = true;
        reader_.SetPayloadLimit(internal::MaxToldBytes(place_.size));
        break;
      case MessageKind::kTold: {
        LH_ASSIGN_OR_RETURN(auto words, internal::DecodeTold(message.payload, place_.size));
        Round& round = rounds_[++whole_rounds_];
        round.whole = true;
        round.words = std::move(words);
        break;
      }
      case MessageKind::kEnded:
        lock.unlock();
        Ended(Printable(message.payload, internal::kMaxEndedBytes));
        return absl::OkStatus();
      default:
        return absl::InvalidArgumentError("it is for rendezvous alone");
    }
    changed_.notify_all();
    return absl::OkStatus();
  }
  void Ended(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (end_.ok()) end_ = absl::AbortedError(reason);
    changed_.notify_all();
  }
  void RunOnEnd() {
    std::unique_lock lock(mutex_);
    if (end_.ok() || !on_end_) return;
    const auto on_end = std::exchange(on_end_, nullptr);
    running_on_end_ = true;
    const Status end = end_;
    lock.unlock();
    on_end(end);
    lock.lock();
    running_on_end_ = false;
    changed_.notify_all();
  }
  Status Send(MessageKind kind, std::string_view payload, Deadline deadline) {
    const std::string bytes = internal::Encode(kind, payload);
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const ssize_t sent = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        rest.remove_prefix(static_cast<size_t>(sent));
      } else if (errno == EAGAIN) {
        if (!internal::AwaitReady(fd_.get(), POLLOUT, deadline)) {
          return absl::DeadlineExceededError("the group's rendezvous reads nothing");
        }
      } else if (errno != EINTR) {
        return absl::UnavailableError("the group's rendezvous has closed the connection");
      }
    }
    return absl::OkStatus();
  }
  // "ranks 2 and 3"
  std::string Missing(uint64_t came) const {
    std::vector<uint32_t> missing;
    for (uint32_t rank = 0; rank < place_.size; ++rank) {
      if ((came >> rank & 1) == 0) missing.push_back(rank);
    }
    return fmt::format("{} {}", missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "));
  }
  Status TooLate(const std::string& text) {
    End(absl::DeadlineExceededError(text));
    return absl::DeadlineExceededError(text);
  }

  const Place place_;
  const UniqueFd fd_;
  const int64_t rendezvous_;  // its process
  const WakeFd wake_;
  MessageReader reader_{internal::kMaxEndedBytes + 4};  // the thread's

  std::mutex sending_;  // messages in one piece, and rounds in the order of their messages

  mutable std::mutex mutex_;  // all below
  mutable std::condition_variable changed_;
  bool joined_ = false;
  Status refused_;
  uint64_t came_to_join_ = 0;
  uint64_t last_round_ = 0, whole_rounds_ = 0;
  std::map<uint64_t, Round> rounds_;  // that a Tell waits for
  Status end_;
  std::function<void(const Status&)> on_end_;
  bool running_on_end_ = false;
  bool stop_ = false;

  std::thread thread_;
};

}  // namespace

StatusOr<std::shared_ptr<Member>> Member::Join(std::string_view id, const Place& place,
                                               Deadline deadline) {
  LH_ASSIGN_OR_RETURN(const internal::RendezvousId parsed, internal::ParseId(id));
  if (place.size == 0 || place.size > kMaxRanks || place.rank >= place.size) {
    return InvalidArgument("a group has 1 to {} ranks, numbered from 0; got rank {} of {}",
                           kMaxRanks, place.rank, place.size);
  }
  auto fd = internal::ConnectUnix(parsed.socket, deadline);
  if (absl::IsUnavailable(fd.status())) {
    return Aborted("the group has ended, or has not begun: {}", Message(fd.status()));
  }
  LH_RETURN_IF_ERROR(fd.status());
  // Who else has the name could only want the secret.
  if (!internal::PeerOf(*fd).same_user) {
    return absl::InvalidArgumentError(
        "the rendezvous with this id is another user's; all ranks run as one user");
  }
  LH_ASSIGN_OR_RETURN(WakeFd wake, WakeFd::Create());
  auto member = std::make_shared<MemberImpl>(place, *std::move(fd), std::move(wake));
  LH_RETURN_IF_ERROR(member->AwaitJoined(parsed.secret, deadline));
  return member;
}

}  // namespace longhaul::collective
