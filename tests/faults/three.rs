//! Three brokers with a proxy each, which all scenarios share that harm brokers or the network: topics lie on all
//! three, the first is the controller. Clients that are under test go through the proxies; the load, the judge and
//! the brokers among themselves do not.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::job::Job;
use crate::kafka::Broker;
use crate::proxy::{Plan, Proxy, Weather};
use crate::replicated::{self, PROPERTIES, REPLICAS};
use crate::stage::PARTITIONS;

/// Three brokers.
pub struct Three {
    pub brokers: Vec<Broker>,
    proxies: Vec<Proxy>,
}

/// The three, in good health.
pub fn lock() -> MutexGuard<'static, Three> {
    static THREE: OnceLock<Mutex<Three>> = OnceLock::new();
    let mut three = THREE.get_or_init(|| Mutex::new(start())).lock().unwrap_or_else(PoisonError::into_inner);
    three.heal();
    three
}

fn start() -> Three {
    let proxies: Vec<Proxy> = (0..REPLICAS).map(|_| Proxy::start()).collect();
    let first = Broker::start_proxied(proxies[0].port(), PROPERTIES);
    let second = first.join_proxied(2, proxies[1].port(), PROPERTIES);
    let third = first.join_proxied(3, proxies[2].port(), PROPERTIES);
    let brokers = vec![first, second, third];
    for (proxy, broker) in proxies.iter().zip(&brokers) {
        proxy.forward_to(broker.behind_proxy());
    }
    Three { brokers, proxies }
}

impl Three {
    /// Mends what an earlier scenario has left broken.
    fn heal(&mut self) {
        for broker in &mut self.brokers {
            match broker.pid() {
                Some(_) => broker.thaw(),
                None => broker.restart(),
            }
        }
        for proxy in &self.proxies {
            proxy.set_weather(Weather::Clear);
            proxy.set_plan(None);
        }
    }

    /// A job whose topics lie on all three and whose operators come through the proxies.
    pub fn job(&self, theme: &str) -> Job {
        let direct: Vec<String> = self.brokers.iter().map(Broker::bootstrap).collect();
        let through: Vec<String> = self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        let mut job = replicated::job(&direct, theme, PARTITIONS);
        job.properties.insert("bootstrap.servers".to_owned(), through.join(","));
        job
    }

    pub fn set_weather(&self, weather: Weather) {
        self.proxies.iter().for_each(|proxy| proxy.set_weather(weather));
    }

    pub fn set_weather_at(&self, which: usize, weather: Weather) {
        self.proxies[which].set_weather(weather);
    }

    pub fn set_plan(&self, plan: Option<Plan>) {
        self.proxies.iter().for_each(|proxy| proxy.set_plan(plan));
    }

    /// Resets every connection.
    pub fn reset(&self) {
        self.proxies.iter().for_each(Proxy::reset);
    }

    /// How often something was done around a request.
    pub fn deeds(&self) -> u64 {
        self.proxies.iter().map(Proxy::deeds).sum()
    }
}
