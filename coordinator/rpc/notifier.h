// Tells subscribed streams that there may be news. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace longhaul::coordinator {

class Notifier {
 public:
  // The calls come on any thread, and several may run at once.
  class Subscriber {
   public:
    virtual ~Subscriber() = default;
    // Called when something may have changed. Must not block.
    virtual void OnNews() = 0;
    // Called when the coordinator shuts down. Must begin to end the stream, and must not block.
    virtual void OnShutdown() = 0;
  };

  // Subscribes `subscriber` until it is destroyed. After Shutdown, calls its OnShutdown at once.
  void Add(const std::shared_ptr<Subscriber>& subscriber);
  // Returns the number of live subscribers.
  size_t size();
  // Notify calls OnNews of all subscribers, and Shutdown calls OnShutdown, on the calling thread.
  // Do not call Notify or Shutdown while holding locks that subscribers take.
  void Notify();
  void Shutdown();

 private:
  std::vector<std::shared_ptr<Subscriber>> Live();

  std::mutex mutex_;  // guards the members below
  std::vector<std::weak_ptr<Subscriber>> subscribers_;
  bool shut_down_ = false;
};

}  // namespace longhaul::coordinator
