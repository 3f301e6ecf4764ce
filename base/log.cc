#include "base/log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <utility>

#include "base/printable.h"

namespace longhaul {
namespace {

constexpr size_t kMaxLineBytes = 16 << 10;

std::string_view PayloadOf(const spdlog::details::log_msg& message) {
  return {message.payload.data(), message.payload.size()};
}

// Every line as people may see it: what a peer said cannot begin a line of its own or steer the
// terminal.
class PrintableSink : public spdlog::sinks::stderr_color_sink_mt {
 public:
  void log(const spdlog::details::log_msg& message) override {
    const std::string text = Printable(PayloadOf(message), kMaxLineBytes);
    spdlog::details::log_msg printable(message.time, message.source, message.logger_name,
                                       message.level, text);
    spdlog::sinks::stderr_color_sink_mt::log(printable);
  }
};

class TapSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void Set(std::function<void(std::string_view, std::string_view)> tap) {
    const std::lock_guard lock(mutex_);
    tap_ = std::move(tap);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (!tap_) return;
    const auto level = spdlog::level::to_string_view(message.level);
    tap_(std::string_view(level.data(), level.size()),
         Printable(PayloadOf(message), kMaxLineBytes));
  }
  void flush_() override {}

 private:
  std::function<void(std::string_view, std::string_view)> tap_;
};

std::shared_ptr<TapSink> Tap() {
  static const auto tap = std::make_shared<TapSink>();
  return tap;
}

spdlog::level::level_enum Spdlogs(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

bool LogsAt(LogLevel level) {
  return spdlog::should_log(Spdlogs(level));
}

void WriteLog(LogLevel level, std::string_view line) {
  spdlog::log(Spdlogs(level), line);
}

// Not spdlog::shutdown: other threads may still log, and would find no logger.
void FlushLog() {
  spdlog::default_logger_raw()->flush();
}

Status InitLogging(const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    return InvalidArgument("log level: expected trace, debug, info, warn, error or off; got '{}'",
                           level);
  }
  auto terminal = std::make_shared<PrintableSink>();
  auto logger = std::make_shared<spdlog::logger>(
      "longhaul", spdlog::sinks_init_list{std::move(terminal), Tap()});
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void SetLogTap(std::function<void(std::string_view, std::string_view)> sink) {
  Tap()->Set(std::move(sink));
}

}  // namespace longhaul
