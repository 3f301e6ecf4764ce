// Tells streams that follow something that there may be news. Thread-safe.
#ifndef LONGHAUL_COORDINATOR_RPC_NOTIFIER_H_
#define LONGHAUL_COORDINATOR_RPC_NOTIFIER_H_

#include <memory>
#include <mutex>
#include <vector>

namespace longhaul::coordinator {

class Notifier {
 public:
  class Subscriber {
   public:
    virtual ~Subscriber() = default;
    // Something may have changed. Must not block.
    virtual void OnNews() = 0;
    // The coordinator goes away: end the stream.
    virtual void OnShutdown() = 0;
  };

  // Until the subscriber is destroyed. After Shutdown(), it hears of that at once.
  void Add(const std::shared_ptr<Subscriber>& subscriber);
  // Subscribers that are alive, or were when last counted.
  size_t size();
  // Call without locks that subscribers take.
  void Notify();
  void Shutdown();

 private:
  std::vector<std::shared_ptr<Subscriber>> Live();

  std::mutex mutex_;  // of both below
  std::vector<std::weak_ptr<Subscriber>> subscribers_;
  bool shut_down_ = false;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_NOTIFIER_H_
