//! What can be set on every client.

/// Methods of a client that has its connection in the field `http`.
macro_rules! settings {
    ($client:ident, models at $models:literal) => {
        impl $client {
            /// The names of the models that this provider offers, in its order.
            pub async fn models(&self) -> Result<Vec<String>, rath_core::Failure> {
                $crate::listing::models(&self.http, $models).await
            }

            /// With this key. It goes into a header and nowhere else.
            #[must_use]
            pub fn key(mut self, key: impl Into<$crate::Key>) -> Self {
                self.http.key = Some(key.into());
                self
            }

            /// At this address, up to where the API's own path begins.
            #[must_use]
            pub fn base_url(mut self, url: impl Into<String>) -> Self {
                self.http.change(|http| http.base_url = url.into());
                self
            }

            /// With another header in every request.
            #[must_use]
            pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.http.headers.push((name.into(), $crate::Key::from(value)));
                self
            }

            /// Costs what this provider asks, whatever the address: for gateways. Names are those of `genai-prices`.
            #[must_use]
            pub fn priced_as(mut self, provider: impl Into<String>) -> Self {
                self.http.priced_as = Some(provider.into());
                self
            }

            /// Through this proxy. No other is used, whatever the environment says; this machine is reached without one.
            #[must_use]
            pub fn proxy(mut self, url: impl Into<String>) -> Self {
                self.http.change(|http| http.proxy = Some(url.into()));
                self
            }

            /// Waits no longer than this for a connection. 15 seconds unless set.
            #[must_use]
            pub fn connect_timeout(mut self, wait: std::time::Duration) -> Self {
                self.http.change(|http| http.connect = wait);
                self
            }

            /// Waits no longer than this for the next piece of an answer, the first included. 5 minutes unless set.
            #[must_use]
            pub fn idle_timeout(mut self, wait: std::time::Duration) -> Self {
                self.http.idle = wait;
                self
            }

            /// Waits no longer than this for a whole answer. An hour unless set.
            #[must_use]
            pub fn total_timeout(mut self, wait: std::time::Duration) -> Self {
                self.http.total = wait;
                self
            }

            /// Reads no more than so many bytes of a response. 64 MiB unless set.
            #[must_use]
            pub fn response_limit(mut self, bytes: usize) -> Self {
                self.http.limit = bytes;
                self
            }
        }
    };
}

/// A client is a model.
macro_rules! model {
    ($client:ident, $decoder:ty, $path:expr, $encoder:expr, $encode:expr, $sent:expr $(, $count:expr)?) => {
        impl rath_core::Model for $client {
            fn name(&self) -> &str {
                &self.model
            }

            fn encoder(&self) -> &str {
                $encoder(self)
            }

            fn encode<'a>(
                &'a self,
                shown: &'a rath_core::Shown<'a>,
            ) -> rath_core::store::BoxFuture<'a, Result<rath_core::Encoded, rath_core::Failure>> {
                Box::pin($crate::client::encode(shown, &self.model, |talk| $encode(self, talk)))
            }

            fn send<'a>(
                &'a self,
                _: &'a rath_core::Shown<'a>,
                request: &'a rath_core::Encoded,
                heard: &'a (dyn Fn(rath_core::Delta) + Send + Sync),
            ) -> rath_core::store::BoxFuture<'a, Result<rath_core::Answer, rath_core::Failure>> {
                Box::pin(async move {
                    let (turn, raw) = $crate::client::ask::<$decoder>(&self.http, $path, request, heard).await?;
                    let (api, json) = $sent(self, &turn);
                    let sent = json.map(|json: String| rath_core::body::AsSent {
                        api: String::from(api),
                        model: self.model.clone(),
                        json: json.into(),
                    });
                    let cost = turn.cost(&self.model, self.http.seller(), rath_core::Time::now());
                    Ok(turn.into_answer(sent, raw, cost))
                })
            }

            $(fn count<'a>(
                &'a self,
                _: &'a rath_core::Shown<'a>,
                request: &'a rath_core::Encoded,
            ) -> rath_core::store::BoxFuture<'a, Result<rath_core::TokenCount, rath_core::Failure>> {
                Box::pin($count(&self.http, request))
            })?
        }
    };
}

pub(crate) use {model, settings};
