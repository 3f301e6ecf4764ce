#include "coordinator/rpc/notifier.h"

#include <utility>

namespace longhaul::coordinator {

void Notifier::Add(const std::shared_ptr<Subscriber>& subscriber) {
  {
    const std::lock_guard lock(mutex_);
    if (!shut_down_) {
      subscribers_.push_back(subscriber);
      return;
    }
  }
  subscriber->OnShutdown();
}

std::vector<std::shared_ptr<Notifier::Subscriber>> Notifier::Live() {
  std::vector<std::shared_ptr<Subscriber>> live;
  const std::lock_guard lock(mutex_);
  std::erase_if(subscribers_, [&](const std::weak_ptr<Subscriber>& weak) {
    std::shared_ptr<Subscriber> subscriber = weak.lock();
    if (subscriber == nullptr) return true;
    live.push_back(std::move(subscriber));
    return false;
  });
  return live;
}

size_t Notifier::size() {
  return Live().size();
}

void Notifier::Notify() {
  for (const auto& subscriber : Live()) subscriber->OnNews();
}

void Notifier::Shutdown() {
  {
    const std::lock_guard lock(mutex_);
    shut_down_ = true;
  }
  for (const auto& subscriber : Live()) subscriber->OnShutdown();
}

}  // namespace longhaul::coordinator
