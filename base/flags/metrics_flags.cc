#include "base/flags/metrics_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "base/token.h"

namespace longhaul {

void AddMetricsFlags(CLI::App& app, MetricsFlags* flags, std::string_view example) {
  app.add_option(
      "--metrics", flags->address,
      fmt::format("numeric host:port at which Prometheus finds metrics, such as {}; without "
                  "--metrics-token-file whoever reaches it reads them; default: none",
                  example));
  app.add_option("--metrics-token-file", flags->token_file,
                 "file whose first line scrapes of --metrics have to bring: Authorization: Bearer "
                 "LINE");
  app.add_option("--metrics-certificate", flags->certificate_file,
                 "PEM file with the certificate that encrypts --metrics; with --metrics-key");
  app.add_option("--metrics-key", flags->key_file,
                 "PEM file with the key of --metrics-certificate");
  app.add_flag("--dump-metrics", flags->dump,
               "print the metrics that there are, as a table in Markdown, and end");
}

std::string ProblemOf(const MetricsFlags& flags) {
  if (flags.certificate_file.empty() != flags.key_file.empty()) {
    return "--metrics-certificate and --metrics-key belong together; give both";
  }
  const bool other = !flags.token_file.empty() || !flags.certificate_file.empty();
  if (other && flags.address.empty()) {
    return fmt::format("{} is for metrics; give --metrics, too",
                       flags.token_file.empty() ? "--metrics-certificate" : "--metrics-token-file");
  }
  return "";
}

StatusOr<metrics::EndpointOptions> OptionsOf(const MetricsFlags& flags) {
  metrics::EndpointOptions options{.address = flags.address,
                                   .token = {},
                                   .certificate_file = flags.certificate_file,
                                   .key_file = flags.key_file};
  if (!flags.token_file.empty()) {
    StatusOr<std::string> token = LoadToken(flags.token_file);
    if (!token.ok()) return Annotate(token.status(), "--metrics-token-file");
    options.token = *std::move(token);
  }
  return options;
}

}  // namespace longhaul
