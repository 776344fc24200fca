//! Settings that every client has.

/// Implements the common methods of a client that has its connection in the field `http`.
macro_rules! settings {
    ($client:ident, models at $models:literal) => {
        impl $client {
            /// Asks the provider for the names of its models, in the provider's order.
            pub async fn models(&self) -> Result<Vec<String>, rath_core::Failure> {
                $crate::listing::models(&self.http, $models).await
            }

            /// Sets the API key. The key is sent in one header and nowhere else.
            #[must_use]
            pub fn key(mut self, key: impl Into<$crate::ApiKey>) -> Self {
                self.http.key = Some(key.into());
                self
            }

            /// Sets the base URL: the address before the API's own path.
            #[must_use]
            pub fn base_url(mut self, url: impl Into<String>) -> Self {
                self.http.change(|http| http.base_url = url.into());
                self
            }

            /// Adds a header to every request.
            #[must_use]
            pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.http.headers.push((name.into(), $crate::ApiKey::from(value)));
                self
            }

            /// Computes costs with the prices of this provider, whatever the base URL: for gateways. Names are those of
            /// the `genai-prices` crate.
            #[must_use]
            pub fn priced_as(mut self, provider: impl Into<String>) -> Self {
                self.http.priced_as = Some(provider.into());
                self
            }

            /// Sends requests through this proxy. Proxy settings in the environment are ignored. Addresses on this
            /// machine are reached directly.
            #[must_use]
            pub fn proxy(mut self, url: impl Into<String>) -> Self {
                self.http.change(|http| http.proxy = Some(url.into()));
                self
            }

            /// Sets the time limit for connecting [15 s].
            #[must_use]
            pub fn connect_timeout(mut self, wait: std::time::Duration) -> Self {
                self.http.change(|http| http.connect = wait);
                self
            }

            /// Sets the time limit for each next piece of the response, the first included [5 minutes].
            #[must_use]
            pub fn idle_timeout(mut self, wait: std::time::Duration) -> Self {
                self.http.idle = wait;
                self
            }

            /// Sets the time limit for a whole response [1 hour].
            #[must_use]
            pub fn total_timeout(mut self, wait: std::time::Duration) -> Self {
                self.http.total = wait;
                self
            }

            /// Sets the size limit of a response, in bytes [64 MiB].
            #[must_use]
            pub fn response_limit(mut self, bytes: usize) -> Self {
                self.http.limit = bytes;
                self
            }
        }
    };
}

/// Implements `Model` for a client.
macro_rules! model {
    ($client:ident, $decoder:ty, $path:expr, $encoder:expr, $encode:expr, $schemas:expr, $sent:expr $(, $count:expr)?) => {
        impl rath_core::Model for $client {
            fn name(&self) -> &str {
                &self.model
            }

            fn encoder(&self) -> &str {
                $encoder(self)
            }

            fn encode<'a>(
                &'a self,
                shown: &'a rath_core::ModelInput<'a>,
            ) -> rath_core::store::BoxFuture<'a, Result<rath_core::Encoded, rath_core::Failure>> {
                Box::pin($crate::client::encode(shown, &self.model, |request_input| $encode(self, request_input)))
            }

            fn send<'a>(
                &'a self,
                _: &'a rath_core::ModelInput<'a>,
                request: &'a rath_core::Encoded,
                on_delta: &'a (dyn Fn(rath_core::Delta) + Send + Sync),
            ) -> rath_core::store::BoxFuture<'a, Result<rath_core::ModelAnswer, rath_core::Failure>> {
                Box::pin(async move {
                    let (turn, raw) = $crate::client::ask::<$decoder>(&self.http, $path, request, on_delta).await?;
                    let (api, json) = $sent(self, &turn);
                    let sent = json.map(|json: String| rath_core::body::NativeTurn {
                        api: String::from(api),
                        model: self.model.clone(),
                        json: json.into(),
                    });
                    let cost = turn.cost(&self.model, self.http.price_source(), rath_core::Time::now());
                    Ok(turn.into_answer(sent, raw, cost))
                })
            }

            fn rate_limit_key(&self, _: u32) -> Option<rath_core::Digest> {
                Some(self.http.rate_limit_key())
            }

            fn answer_schema_support(&self) -> rath_core::AnswerSchemaSupport {
                $schemas(self)
            }

            $(fn count<'a>(
                &'a self,
                _: &'a rath_core::ModelInput<'a>,
                request: &'a rath_core::Encoded,
            ) -> rath_core::store::BoxFuture<'a, Result<rath_core::TokenCount, rath_core::Failure>> {
                Box::pin($count(&self.http, request))
            })?
        }
    };
}

pub(crate) use {model, settings};
