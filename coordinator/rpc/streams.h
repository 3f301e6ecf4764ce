// Streams from the coordinator to the CLI, such as a run's state as it changes, or pages of events.
// The objects keep themselves alive until gRPC is done with them.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "coordinator/rpc/notifier.h"
#include "coordinator/rpc/places.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {

// Sends the messages that `next` returns, one after the other. If there are none, waits for news
// and calls `next` again.
template <class Message>
class FollowStream : public grpc::ServerWriteReactor<Message>, public Notifier::Subscriber {
 public:
  // What to send now. `more`: call `next` again once `messages` are sent, without waiting for news.
  // `end`: the status that ends the stream after `messages`. Threads of gRPC and of the notifier
  // call `next`, one at a time. It must not block for long.
  struct Step {
    std::vector<Message> messages;
    bool more = false;
    std::optional<Status> end;
  };
  using Next = std::function<Step()>;

  // Returns the reactor for gRPC. `notifier` tells the stream when there is news. `place`: that of
  // the stream's caller.
  static FollowStream* Start(Notifier* notifier, Place place, Next next) {
    std::shared_ptr<FollowStream> stream(new FollowStream(std::move(place), std::move(next)));
    FollowStream* raw = stream.get();
    raw->self_ = stream;
    notifier->Add(stream);
    raw->OnNews();
    return raw;
  }

  void OnNews() override {
    const std::lock_guard lock(mutex_);
    ask_ = true;
    AdvanceLocked();
  }
  void OnShutdown() override {
    const std::lock_guard lock(mutex_);
    EndLocked(absl::UnavailableError("the coordinator is shutting down"));
  }
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    EndLocked(absl::CancelledError("the caller is gone"));
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    ++sent_;
    if (!ok) EndLocked(absl::CancelledError("the caller is gone"));
    AdvanceLocked();
  }
  void OnDone() override { self_.reset(); }

 private:
  FollowStream(Place place, Next next) : place_(std::move(place)), next_(std::move(next)) {}

  void EndLocked(const Status& status) {
    if (!end_.has_value()) end_ = status;
    messages_.resize(std::min(messages_.size(), sent_ + (writing_ ? 1 : 0)));
    AdvanceLocked();
  }

  void AdvanceLocked() {
    if (writing_ || finished_) return;
    if (sent_ == messages_.size() && ask_ && !end_.has_value()) {
      Step step = next_();
      messages_ = std::move(step.messages);
      sent_ = 0;
      ask_ = step.more;
      end_ = std::move(step.end);
    }
    if (sent_ < messages_.size()) {
      writing_ = true;
      this->StartWrite(&messages_[sent_]);
    } else if (end_.has_value()) {
      finished_ = true;
      this->Finish(ToGrpc(*end_));
    }
  }

  const Place place_;
  const Next next_;
  std::shared_ptr<FollowStream> self_;
  std::mutex mutex_;               // guards the members below
  std::vector<Message> messages_;  // messages of this step
  size_t sent_ = 0;                // number of messages_ already sent
  bool ask_ = false;
  bool writing_ = false;
  bool finished_ = false;
  std::optional<Status> end_;
};

}  // namespace longhaul::coordinator
